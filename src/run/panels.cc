#include "run/panels.h"

#include <algorithm>
#include <numeric>

#include "kernels/gemm_panel.h"

namespace tutti {
namespace {

constexpr uint64_t kLine = 64;

GemmPanel panel_of(const TensorRef& ref, const std::byte* buffer, float* packed) {
  const auto* data = reinterpret_cast<const float*>(buffer) + ref.offset;
  return {.b = {data, ref.strides[0], ref.strides[1]},
          .n = ref.type.dims[1].size,
          .k = ref.type.dims[0].size,
          .packed = packed};
}

}  // namespace

Result<void> Panels::allocate(const Program& program, ProcessMemory& memory) {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
  for (const TensorRef& ref : program.panels) {
    offsets.push_back(bytes);
    bytes += gemm_panel_bytes(ref.type.dims[1].size, ref.type.dims[0].size);
    bytes = (bytes + kLine - 1) / kLine * kLine;
  }
  places_.assign(program.panels.size(), nullptr);
  if (bytes == 0) return {};
  TRY(room_, memory.allocate(bytes));
  for (size_t i = 0; i < places_.size(); ++i)
    places_[i] = reinterpret_cast<float*>(room_->bytes().data() + offsets[i]);
  return {};
}

void Panels::renew(const Program& program, std::span<std::byte* const> buffers, Team& team) {
  if (room_ == nullptr) return;
  const auto source_of = [&](const TensorRef& ref) { return buffers[ref.buffer]; };
  if (fresh_ && std::ranges::equal(sources_, program.panels, {}, {}, source_of)) return;
  sources_.clear();
  for (const TensorRef& ref : program.panels) sources_.push_back(source_of(ref));
  team.run([&](int thread) {
    for (size_t i = static_cast<size_t>(thread); i < places_.size();
         i += static_cast<size_t>(team.threads())) {
      const GemmPanel panel = panel_of(program.panels[i], sources_[i], places_[i]);
      gemm_pack_panel(panel, {0, panel.k, 0, panel.n});
    }
  });
  fresh_ = true;
}

}  // namespace tutti
