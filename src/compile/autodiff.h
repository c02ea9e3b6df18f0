// Gradients, by reverse accumulation on the graph.
//
// The result is an ordinary graph: forward operations, then those of the gradients, each with the
// user's line of the operation that it is the gradient of. Gradients by inputs and those by weights
// are separate operations, so that a schedule may part them (gradient_part.h).
#pragma once

#include <string>

#include "compile/graph.h"

namespace tutti {

// The name of the output that is the gradient of an input.
std::string gradient_name(std::string_view input);

// Adds an output for each of `inputs`: the gradient of the output `loss`, a single number. Inputs
// that it does not depend on have a gradient of zeros.
Result<Graph> differentiate(Graph graph, const std::string& loss, const Names& inputs);

}  // namespace tutti
