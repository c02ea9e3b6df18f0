#include "compile/program/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "compile/passes/passes.h"
#include "compile/program/frame.h"
#include "compile/program/packing.h"
#include "compile/program/schedule.h"

namespace tutti {
namespace {

bool is_next_state(const Program& program, const TensorRef& ref) {
  const ProgramBuffer& buffer = program.buffers[ref.buffer];
  if (buffer.place != BufferPlace::output) return false;
  return std::ranges::any_of(program.inputs, [&](const Input& input) {
    return input.role == InputRole::state && input.name == program.outputs[buffer.index].name;
  });
}

// A norm over all gradients is where a step is decided; from the first write of a state on it is
// being committed. Only if no state is written before all else was read may a step be cut there.
void mark_sections(Program& program) {
  Section section = Section::compute;
  for (Instruction& instruction : program.instructions) {
    if (instruction.kernel == Kernel::square_chunks && section == Section::compute)
      section = Section::decide;
    if (std::ranges::any_of(instruction.results,
                            [&](const TensorRef& ref) { return is_next_state(program, ref); }))
      section = Section::commit;
    instruction.section = section;
  }
}

// A wait is for the last collective that was begun with the same memory. Few are under way at once,
// and each of them has a slot of its own.
void number_collectives(Program& program) {
  std::vector<const Instruction*> slots;
  const auto same = [](const TensorRef& a, const TensorRef& b) {
    return a.buffer == b.buffer && a.offset == b.offset && a.type == b.type;
  };
  for (Instruction& instruction : program.instructions) {
    if (instruction.kernel == Kernel::collective_start) {
      const auto free = std::ranges::find(slots, nullptr);
      const auto slot = free - slots.begin();
      if (free == slots.end()) slots.push_back(nullptr);
      slots[static_cast<size_t>(slot)] = &instruction;
      instruction.attributes.set("slot", int64_t{slot});
    } else if (instruction.kernel == Kernel::collective_wait) {
      const auto its = std::ranges::find_if(slots, [&](const Instruction* begun) {
        return begun != nullptr &&
               std::ranges::equal(begun->operands, instruction.operands, same) &&
               std::ranges::equal(begun->results, instruction.results, same);
      });
      TUTTI_ASSERT(its != slots.end(), "what is waited for was begun");
      instruction.attributes.set("slot", int64_t{its - slots.begin()});
      *its = nullptr;
    }
  }
}

// With all buffers in their places; every instruction waits for all before.
Result<Program> planned_program(const Graph& of_rank) {
  const Graph graph = take_own_slices(of_rank);
  Program program;
  LoopTable loops(program.loops);
  TRY(FrameCode frame, lower_frame(graph, loops));
  for (const Input& input : graph.inputs) {
    program.input_types.push_back(graph.type(input.value));
    program.inputs.push_back({.value = static_cast<ValueId>(program.buffers.size()),
                              .name = input.name,
                              .role = input.role});
    program.buffers.push_back({.place = BufferPlace::input,
                               .index = static_cast<uint32_t>(program.inputs.size() - 1),
                               .bytes = graph.type(input.value).bytes()});
  }
  for (const Output& output : graph.outputs) {
    program.output_types.push_back(graph.type(output.value));
    program.outputs.push_back(
        {.value = static_cast<ValueId>(program.buffers.size()), .name = output.name});
    program.buffers.push_back({.place = BufferPlace::output,
                               .index = static_cast<uint32_t>(program.outputs.size() - 1),
                               .bytes = graph.type(output.value).bytes()});
  }
  program.buffers.push_back({.place = BufferPlace::arena, .bytes = frame.bytes});
  program.arena_bytes = frame.bytes;
  program.instructions = std::move(frame.instructions);
  number_collectives(program);
  mark_sections(program);
  return program;
}

constexpr std::array<std::string_view, 3> kSteps = {"memory-plan", "schedule", "packing"};

}  // namespace

Result<Program> lower_to_program(const Graph& graph) {
  TRY(Program program, planned_program(graph));
  schedule_over_threads(program);
  TRY_DO(check_schedule(program));
  return program;
}

std::span<const std::string_view> program_steps() { return kSteps; }

Result<Program> program_after(const Graph& graph, std::string_view step) {
  if (step == kSteps[0]) return planned_program(graph);
  TRY(Program program, lower_to_program(graph));
  if (step != kSteps[1]) choose_packing(program, {});
  return program;
}

}  // namespace tutti
