#include <fmt/format.h>

#include <array>

#include "compile/program/program.h"

namespace tutti {
namespace {

constexpr std::array kKernelNames = {"loops",
                                     "gemm",
                                     "attention",
                                     "attention_grad",
                                     "layer_norm",
                                     "layer_norm_grad_rows",
                                     "layer_norm_grad_join",
                                     "rms_norm",
                                     "rms_norm_grad_rows",
                                     "rms_norm_grad_join",
                                     "cross_entropy",
                                     "gather",
                                     "scatter_add",
                                     "update",
                                     "sum_rows",
                                     "sum_rows_join",
                                     "sum_chunks",
                                     "square_chunks",
                                     "join_chunks",
                                     "adamw",
                                     "collective_start",
                                     "collective_wait",
                                     "plain"};

std::string ref_text(const Program& program, const TensorRef& ref) {
  const ProgramBuffer& buffer = program.buffers[ref.buffer];
  std::string base = buffer.place == BufferPlace::arena ? "arena"
                     : buffer.place == BufferPlace::input
                         ? program.inputs[buffer.index].name
                         : program.outputs[buffer.index].name + "'";
  if (ref.offset != 0 || buffer.place == BufferPlace::arena)
    base += fmt::format("+{}", ref.offset * element_bytes(ref.type.dtype));
  std::string strides;
  if (!ref.is_dense()) {
    for (const int64_t stride : ref.strides)
      strides += fmt::format("{}{}", strides.empty() ? " by " : ",", stride);
  }
  return fmt::format("{}:{}{}", base, ref.type.text(), strides);
}

std::string refs_text(const Program& program, const std::vector<TensorRef>& refs) {
  std::string text;
  for (const TensorRef& ref : refs)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ref_text(program, ref));
  return text;
}

// What was decided about how it runs.
std::string choices_text(const Instruction& instruction) {
  std::string text;
  for (const uint32_t panel : instruction.panels)
    text += fmt::format("{} {}",
                        panel != instruction.panels[0]       ? ","
                        : instruction.kernel == Kernel::gemm ? " with panel"
                        : instruction.panels.size() == 1     ? " into panel"
                                                             : " into panels",
                        panel);
  if (instruction.beside != 0) text += fmt::format(" beside {}", instruction.beside);
  if (instruction.room != 0) text += fmt::format(" in room {}", instruction.room);
  return text;
}

}  // namespace

std::string_view kernel_name(Kernel kernel) { return kKernelNames[static_cast<size_t>(kernel)]; }

std::string Program::text() const {
  std::string out = fmt::format("program, arena of {} bytes\n", arena_bytes);
  for (size_t i = 0; i < panels.size(); ++i)
    out += fmt::format("  panel {}: {}\n", i, ref_text(*this, panels[i]));
  Section section = Section::compute;
  for (const Instruction& instruction : instructions) {
    if (instruction.section != section) {
      section = instruction.section;
      out += section == Section::decide ? " decide:\n" : " commit:\n";
    }
    const std::string name = instruction.kernel == Kernel::plain
                                 ? fmt::format("plain {}", op_info(instruction.kind).name)
                             : instruction.kernel == Kernel::loops
                                 ? loops[static_cast<size_t>(instruction.loops)].name
                                 : std::string(kernel_name(instruction.kernel));
    out +=
        fmt::format("  {} {}({}) -> {}{}{}\n", name, instruction.attributes.text(),
                    refs_text(*this, instruction.operands), refs_text(*this, instruction.results),
                    choices_text(instruction), instruction.at.empty() ? "" : " @" + instruction.at);
    if (instruction.kernel != Kernel::gemm || instruction.loops < 0) continue;
    const LoopKernel& edge = loops[static_cast<size_t>(instruction.loops)];
    const auto reads = instruction.edge.begin() + static_cast<ptrdiff_t>(edge.reads);
    out += fmt::format("    then {} ({}) -> {}\n", edge.name,
                       refs_text(*this, {instruction.edge.begin(), reads}),
                       refs_text(*this, {reads, instruction.edge.end()}));
  }
  for (const LoopKernel& kernel : loops) out += kernel.text();
  return out;
}

}  // namespace tutti
