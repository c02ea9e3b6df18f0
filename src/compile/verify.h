// Whether a graph is one: every value made before it is used and once, every type what follows from
// the operands, outputs that exist, names that are unique. Run after every pass.
#pragma once

#include "compile/graph.h"

namespace tutti {

// The error names the operation, its place in the list and the user's line.
Result<void> verify(const Graph& graph);

}  // namespace tutti
