// One step of training as a graph: a model's loss, its gradients, their norm, and AdamW.
//
// Inputs are the model's data, "rate" (f32) and "step" (i64, from 1); states are the weights and
// of each NAME the moments "first/NAME" and "second/NAME"; outputs, besides the states' next
// values, are "loss" and "norm", the gradient's before it was clipped.
//
// With more than one atom, the data have a first dimension "atom". Gradients and losses of the
// atoms are added from the first to the last, beginning with zero, and their mean counts: the bits
// of a step follow from the atoms' size, never from who computes how many of them.
#pragma once

#include <string>
#include <string_view>

#include "compile/builder.h"
#include "compile/model.h"

namespace tutti {

struct StepOptions {
  int64_t atoms = 1;
  double max_norm = 0;  // gradients are scaled down to it; 0: never
  AdamWOptions adamw;   // its decay is for parameters that say so; others have none
};

std::string first_moment_name(std::string_view parameter);
std::string second_moment_name(std::string_view parameter);

// The model's only output must be "loss", a single number.
Result<Graph> training_step(const Model& model, const StepOptions& options);

// The loss alone, without gradients.
Result<Graph> evaluation_step(const Model& model);

}  // namespace tutti
