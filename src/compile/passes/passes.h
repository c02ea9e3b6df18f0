// What is done to a graph between the model and its program, one file each.
//
// Each takes a graph that verify() accepts and returns one that computes the same.
#pragma once

#include <span>
#include <string_view>

#include "compile/graph.h"

namespace tutti {

struct Pass {
  std::string_view name;
  Graph (*run)(const Graph& graph);
};

// All of them, in order.
std::span<const Pass> passes();
// The graph after all of them, or after the last one of this name.
Graph optimize(Graph graph, std::string_view until = {});

// Larger operations without kernels of their own, in primitives.
Graph expand(const Graph& graph);

// Operations that compute nothing new: arithmetic with 0 and 1, of constants, changes of shape of
// changes of shape.
Graph simplify(const Graph& graph);

// Of operations that compute the same, only the first.
Graph merge_equal(const Graph& graph);

// The gradient of a loss computes the loss on its way: where it does not depend on it, it is moved
// to the loss's place and stands for both.
Graph join_losses(const Graph& graph);

// The gradient of an input and those of weights that follow from the same, as one operation: both
// in one pass over what they read. Who wants them apart has them in graphs of their own.
Graph join_gradients(const Graph& graph);

// A sum of pads that leave each other free is a concat: what the gradient of several slices of one
// tensor is.
Graph join_pads(const Graph& graph);

// What is added to all that a repeat stacks is added to each part in its round: sums of gradients
// are finished where the gradients are made.
Graph sink_sums(const Graph& graph);

// No operations that no output needs, and no rounds of a repeat carry what nobody reads.
Graph remove_unused(const Graph& graph);

// Everything between heavy kernels that can be one loop is one operation, `fused`. Leaves constants
// that nobody needs any more to remove_unused.
Graph fuse(const Graph& graph);

// What a rank takes of what all have, where the graph says which rank it is ({index}), as the slice
// that it is. Ranks that shall meet go through all other passes before, with one graph.
Graph take_own_slices(const Graph& graph);

}  // namespace tutti
