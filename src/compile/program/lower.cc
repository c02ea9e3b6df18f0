#include "compile/program/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "base/assert.h"
#include "compile/program/frame.h"

namespace tutti {

Result<Program> lower_to_program(const Graph& graph) {
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
  return program;
}

}  // namespace tutti
