// What the larger operations mean, in primitives.
#pragma once

#include <span>

#include "compile/graph.h"

namespace tutti {

// A graph that takes the operation's operands and returns its results, of primitives and other
// larger operations only as far as these have decompositions too. Not for `repeat` and `fused`.
Graph decompose(OpKind kind, std::span<const Type> operands, const Attributes& attributes);

}  // namespace tutti
