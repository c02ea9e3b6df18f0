// From a graph to the program that computes it.
#pragma once

#include "compile/program/program.h"

namespace tutti {

// The graph has been through the passes. A state's next value takes its place; where the old one is
// still read later, it is put there at the end.
Result<Program> lower_to_program(const Graph& graph);

}  // namespace tutti
