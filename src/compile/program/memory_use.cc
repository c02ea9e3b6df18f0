#include "compile/program/memory_use.h"

#include <algorithm>

namespace tutti {
namespace {

uint32_t memory_of(const Program& program, uint32_t index) {
  const ProgramBuffer& buffer = program.buffers[index];
  if (buffer.place != BufferPlace::output) return index;
  for (const Input& input : program.inputs)
    if (input.role == InputRole::state && input.name == program.outputs[buffer.index].name)
      return static_cast<uint32_t>(input.value);
  return index;
}

// These add up in place what they are given.
bool writes_operands(Kernel kernel) {
  return kernel == Kernel::layer_norm_grad_join || kernel == Kernel::rms_norm_grad_join ||
         kernel == Kernel::sum_rows_join || kernel == Kernel::join_chunks;
}

}  // namespace

std::vector<MemoryUse> memory_uses(const Program& program, const Instruction& instruction) {
  std::vector<MemoryUse> all;
  const auto add = [&](std::span<const TensorRef> refs, bool writes) {
    for (const TensorRef& ref : refs) {
      if (ref.type.elements() == 0) continue;
      int64_t last = ref.offset;
      for (size_t i = 0; i < ref.strides.size(); ++i)
        last += (ref.type.dims[i].size - 1) * ref.strides[i];
      const int64_t bytes = element_bytes(ref.type.dtype);
      all.push_back({.memory = memory_of(program, ref.buffer),
                     .first = ref.offset * bytes,
                     .end = (last + 1) * bytes,
                     .writes = writes});
    }
  };
  add(instruction.operands, writes_operands(instruction.kernel));
  add(instruction.results, true);
  if (!instruction.edge.empty()) {
    const size_t reads = program.loops[static_cast<size_t>(instruction.loops)].reads;
    const std::span<const TensorRef> edge = instruction.edge;
    add(edge.first(reads), false);
    add(edge.subspan(reads), true);
  }
  for (const uint32_t panel : instruction.panels)
    all.push_back({.memory = static_cast<uint32_t>(program.buffers.size()) + panel,
                   .first = 0,
                   .end = 1,
                   .writes = instruction.kernel != Kernel::gemm});
  return all;
}

bool disturb(std::span<const MemoryUse> a, std::span<const MemoryUse> b) {
  return std::ranges::any_of(a, [&](const MemoryUse& one) {
    return std::ranges::any_of(b, [&](const MemoryUse& other) {
      return (one.writes || other.writes) && one.memory == other.memory && one.first < other.end &&
             other.first < one.end;
    });
  });
}

}  // namespace tutti
