#include "run/initialise.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "base/philox.h"
#include "compile/interpret.h"
#include "kernels/normal.h"

namespace tutti {

void initial_values(const Init& init, int64_t seed, std::string_view file_name, int64_t first,
                    std::span<float> values) {
  if (init.kind == InitKind::zeros || init.kind == InitKind::ones) {
    std::ranges::fill(values, init.kind == InitKind::ones ? 1.0F : 0.0F);
    return;
  }
  const uint64_t key = stream_key(seed, fmt::format("initial/{}", file_name));
  if (init.kind == InitKind::normal)
    return normal_values(key, static_cast<uint64_t>(first), init.scale, values);
  PhiloxBlock block{};
  for (size_t i = 0; i < values.size(); ++i) {
    // Four elements share a block, as random_bits() has it.
    const uint64_t index = static_cast<uint64_t>(first) + i;
    if (i == 0 || index % 4 == 0)
      block = philox(
          key, {static_cast<uint32_t>(index / 4), static_cast<uint32_t>(index / 4 >> 32), 0, 0});
    const double share = (block[index % 4] + 0.5) * 0x1p-32;  // never 0 nor 1
    values[i] = static_cast<float>(init.scale * (2 * share - 1));
  }
}

void initialise(const Parameter& parameter, int64_t seed, std::span<float> values, Team& team) {
  TUTTI_ASSERT(parameter.type.dtype == DType::f32, "weights are initialised as f32");
  TUTTI_ASSERT(std::cmp_equal(values.size(), parameter.type.elements()),
               "there is room for every element");
  const int64_t layers = parameter.stacked() ? parameter.type.dims[0].size : 1;
  const auto elements = std::ssize(values) / layers;
  const int64_t threads = team.threads();
  team.run([&](int thread) {
    const int64_t begin = elements * thread / threads;
    const int64_t end = elements * (thread + 1) / threads;
    for (int64_t layer = 0; layer < layers; ++layer)
      initial_values(parameter.init, seed, layer_name(parameter.name, layer), begin,
                     values.subspan(static_cast<size_t>(layer * elements + begin),
                                    static_cast<size_t>(end - begin)));
  });
}

}  // namespace tutti
