// From a graph to the program that computes it.
#pragma once

#include <span>
#include <string_view>

#include "compile/program/program.h"

namespace tutti {

// The graph has been through the passes. A state's next value takes its place; where the old one is
// still read later, it is put there at the end.
Result<Program> lower_to_program(const Graph& graph);

// The same step by step, for people who look: "memory-plan" (instructions whose buffers have their
// places, each after all before), "schedule" (which may run beside which: lower_to_program), and
// "packing", which whoever runs a program decides about (packing.h).
std::span<const std::string_view> program_steps();
// After the step of this name, or after all.
Result<Program> program_after(const Graph& graph, std::string_view step = {});

}  // namespace tutti
