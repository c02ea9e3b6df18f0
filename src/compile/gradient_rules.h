// The gradient of each operation but `repeat`.
#pragma once

#include <vector>

#include "compile/builder.h"

namespace tutti {

struct GradientCall {
  Builder& builder;
  Node op;
  std::vector<Tensor> operands;
  std::vector<Tensor> results;
  std::vector<Tensor> adjoints;  // of the results; empty where nothing depends on one
  std::vector<bool> wanted;      // of the operands
};

// One for each operand; empty where it is not wanted or there is none. An operation without a rule
// is an error.
Result<std::vector<Tensor>> operand_gradients(const GradientCall& call);

}  // namespace tutti
