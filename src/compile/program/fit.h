// A program that fits: what it would have to keep is computed again, the cheapest first, until its
// scratch is small enough.
#pragma once

#include <string>
#include <vector>

#include "compile/program/program.h"

namespace tutti {

struct FittedProgram {
  Graph graph;  // with what is computed again, before the passes that follow remove-unused
  Program program;
  std::vector<std::string> recomputed;  // what it computes again, for people
};

// The program of a graph that has been through no pass yet, with no more scratch than `most_bytes`
// if that can be had; else with as little as can.
Result<FittedProgram> fit_program(const Graph& graph, int64_t most_bytes);

}  // namespace tutti
