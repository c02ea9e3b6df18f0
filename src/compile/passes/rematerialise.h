// Memory for work: what rounds of a forward repeat keep for its gradient is computed again there
// from what else is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compile/graph.h"

namespace tutti {

// One kept value that could be computed again.
struct Recomputation {
  std::vector<size_t> path;  // of operations, from the outermost graph: whose bodies it is in
  size_t forward = 0;        // the repeat that keeps it,
  size_t result = 0;         // as this result,
  size_t backward = 0;       // and the one that reads it
  int64_t bytes = 0;         // of all rounds
  double work = 0;           // to compute it again, in all rounds: flops, and elements touched
  std::string text;          // "gelu of gpt.py:41: f32[batch=16, time=256, hidden=1536]"
};

// All there are, those that give most memory for their work first.
std::vector<Recomputation> find_recomputations(const Graph& graph);

// With this one done.
Graph rematerialise(const Graph& graph, const Recomputation& what);

}  // namespace tutti
