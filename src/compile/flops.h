// How much a graph multiplies and adds: what a machine's peak is compared with.
#pragma once

#include "compile/graph.h"

namespace tutti {

// Of products, attention and losses over a vocabulary; a multiply-add counts twice, and half of
// what is causal not at all. What is only computed again is not counted: the gradient of attention
// is twice attention, and so is that of a loss.
double flops_of(const Graph& graph);

}  // namespace tutti
