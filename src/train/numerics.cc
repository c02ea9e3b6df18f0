#include "train/numerics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"

namespace tutti {
namespace {

constexpr size_t kMostNamed = 4;  // operations of a fused loop that are told

// The exponent says it: all ones.
bool is_finite_at(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f32: return std::isfinite(load_le<float>(at));
    case DType::f64: return std::isfinite(load_le<double>(at));
    case DType::bf16: return (load_le<uint16_t>(at) & 0x7f80) != 0x7f80;
    case DType::f16: return (load_le<uint16_t>(at) & 0x7c00) != 0x7c00;
    default: return true;
  }
}

std::string number_text(DType dtype, const std::byte* at) {
  // Not a number has a sign, which says nothing.
  const auto text = [](auto x) { return std::isnan(x) ? "nan" : fmt::format("{}", x); };
  if (dtype == DType::f32) return text(load_le<float>(at));
  if (dtype == DType::f64) return text(load_le<double>(at));
  return "inf or nan";
}

// The first element that is not finite: "nan at [batch 0, time 3]".
std::optional<std::string> first_of(const TensorRef& ref, const std::byte* buffer) {
  if (!is_float(ref.type.dtype)) return std::nullopt;
  const int64_t bytes = element_bytes(ref.type.dtype);
  std::vector<int64_t> index(ref.type.dims.size());
  int64_t offset = ref.offset;
  for (int64_t n = ref.type.elements(); n > 0; --n) {
    const std::byte* at = buffer + offset * bytes;
    if (!is_finite_at(ref.type.dtype, at)) {
      std::vector<std::string> place;
      for (size_t i = 0; i < index.size(); ++i)
        place.push_back(fmt::format("{} {}", ref.type.dims[i].name, index[i]));
      return fmt::format("{} at [{}] of {}", number_text(ref.type.dtype, at),
                         fmt::join(place, ", "), ref.type.text());
    }
    for (size_t i = index.size(); i-- > 0;) {
      offset += ref.strides[i];
      if (++index[i] < ref.type.dims[i].size) break;
      offset -= ref.strides[i] * ref.type.dims[i].size;
      index[i] = 0;
    }
  }
  return std::nullopt;
}

// "matmul", or of a loop the operations in it: "exp", "mul + add".
std::string operation_of(const Program& program, const Instruction& instruction) {
  if (instruction.kernel == Kernel::plain) return std::string(op_info(instruction.kind).name);
  if (instruction.kernel == Kernel::gemm) return "matmul";
  if (instruction.kernel != Kernel::loops) return std::string(kernel_name(instruction.kernel));
  std::vector<std::string_view> names;
  for (const LoopNode& node : program.loops[static_cast<size_t>(instruction.loops)].nodes) {
    const std::string_view name = node.op == LoopOp::sum     ? "sum"
                                  : node.op == LoopOp::max   ? "max"
                                  : node.op == LoopOp::apply ? op_info(node.kind).name
                                                             : "";
    if (!name.empty() && std::ranges::count(names, name) == 0 && names.size() < kMostNamed)
      names.push_back(name);
  }
  return names.empty() ? "copy" : fmt::format("{}", fmt::join(names, " + "));
}

bool is_collective(const Instruction& instruction) {
  return instruction.kernel == Kernel::collective_start ||
         instruction.kernel == Kernel::collective_wait;
}

std::byte* memory_of(const ProgramBuffer& buffer, const ProgramCall& call) {
  return buffer.place == BufferPlace::input    ? call.inputs[buffer.index]
         : buffer.place == BufferPlace::output ? call.outputs[buffer.index]
                                               : call.arena;
}

}  // namespace

Result<std::optional<std::string>> find_not_finite(LoadedProgram& program, size_t end,
                                                   const ProgramCall& call) {
  const Program& code = program.program();
  for (size_t i = 0; i < code.inputs.size(); ++i) {
    const Type& type = code.input_types[i];
    const TensorRef whole{.type = type, .strides = dense_strides(type)};
    if (const auto found = first_of(whole, call.inputs[i]))
      return fmt::format("{} was {} before the step", code.inputs[i].name, *found);
  }
  // Who has found something goes on as far as others wait for it.
  size_t last = 0;
  for (size_t i = 0; i < end; ++i)
    if (is_collective(code.instructions[i])) last = i + 1;
  std::optional<std::string> culprit;
  bool looks = true;
  for (size_t i = 0; i < (looks ? end : last); ++i) {
    const Instruction& instruction = code.instructions[i];
    TRY_DO(program.run({i, i + 1}, call));
    if (!looks || instruction.kernel == Kernel::collective_start) continue;
    for (const TensorRef& result : instruction.results) {
      const ProgramBuffer& buffer = code.buffers[result.buffer];
      const auto found = first_of(result, memory_of(buffer, call));
      if (!found) continue;
      looks = false;
      if (is_collective(instruction)) break;  // another worker's number
      culprit = fmt::format("{}{}{} made {} from finite numbers", operation_of(code, instruction),
                            instruction.at.empty() ? "" : " of ", instruction.at, *found);
      break;
    }
  }
  return culprit;
}

}  // namespace tutti
