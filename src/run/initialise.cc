#include "run/initialise.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/assert.h"
#include "base/philox.h"
#include "compile/interpret.h"

namespace tutti {
namespace {

constexpr double kLogOfTwo = 0.693147180559945309417232;

// Of 0 < x: the exponent and a series in (m-1)/(m+1), whose terms end below the last bit.
double natural_log(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xfffffffffffff) | 0x3ff0000000000000);
  if (mantissa > 1.41421356) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double series = 0;
  for (int power = 21; power >= 1; power -= 2) series = series * square + 1.0 / power;
  return static_cast<double>(exponent) * kLogOfTwo + 2 * s * series;
}

double polynomial(double x, std::span<const double> coefficients) {
  double sum = 0;
  for (const double coefficient : coefficients) sum = sum * x + coefficient;
  return sum;
}

}  // namespace

// P. J. Acklam's rational approximations, with a relative error below 1.2e-9: a sixtieth of what
// an f32 rounds away.
double normal_quantile(double probability) {
  static constexpr double kA[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                                  -2.759285104469687e+02, 1.383577518672690e+02,
                                  -3.066479806614716e+01, 2.506628277459239e+00};
  static constexpr double kB[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                                  -1.556989798598866e+02, 6.680131188771972e+01,
                                  -1.328068155288572e+01, 1};
  static constexpr double kC[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                                  -2.400758277161838e+00, -2.549732539343734e+00,
                                  4.374664141464968e+00,  2.938163982698783e+00};
  static constexpr double kD[] = {7.784695709041462e-03, 3.224671290700398e-01,
                                  2.445134137142996e+00, 3.754408661907416e+00, 1};
  constexpr double kTail = 0.02425;
  if (probability > 0.5) return -normal_quantile(1 - probability);
  if (probability < kTail) {
    const double q = std::sqrt(-2 * natural_log(probability));
    return polynomial(q, kC) / polynomial(q, kD);
  }
  const double q = probability - 0.5;
  const double square = q * q;
  return q * polynomial(square, kA) / polynomial(square, kB);
}

void initial_values(const Init& init, int64_t seed, std::string_view file_name, int64_t first,
                    std::span<float> values) {
  if (init.kind == InitKind::zeros || init.kind == InitKind::ones) {
    std::ranges::fill(values, init.kind == InitKind::ones ? 1.0F : 0.0F);
    return;
  }
  const uint64_t key = stream_key(seed, fmt::format("initial/{}", file_name));
  PhiloxBlock block{};
  for (size_t i = 0; i < values.size(); ++i) {
    // Four elements share a block, as random_bits() has it.
    const uint64_t index = static_cast<uint64_t>(first) + i;
    if (i == 0 || index % 4 == 0)
      block = philox(
          key, {static_cast<uint32_t>(index / 4), static_cast<uint32_t>(index / 4 >> 32), 0, 0});
    const double share = (block[index % 4] + 0.5) * 0x1p-32;  // never 0 nor 1
    const double value = init.kind == InitKind::normal ? normal_quantile(share) : 2 * share - 1;
    values[i] = static_cast<float>(init.scale * value);
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
