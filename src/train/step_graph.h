// One step of training as a graph: a model's loss, its gradients, their norm, and AdamW.
//
// Inputs are the model's data, "rate" (f32) and "step" (i64, from 1); states are the weights and
// of each NAME the moments "first/NAME" and "second/NAME"; outputs, besides the states' next
// values, are "loss" and "norm", the gradient's before it was clipped.
//
// With more than one atom, the data have a first dimension "atom". Gradients and losses of the
// atoms are summed in an order of their own (lane_fold.h), and their mean counts: the bits of a
// step follow from the atoms' size and the number of lanes, never from who computes how many of
// them. A worker that has some of the lanes is given their atoms' data alone.
#pragma once

#include <string>
#include <string_view>

#include "compile/builder.h"
#include "compile/model.h"
#include "fabric/fold_tree.h"
#include "train/model_part.h"
#include "train/shards.h"

namespace tutti {

struct StepOptions {
  int64_t atoms = 1;      // of all workers
  uint32_t lanes = 1;     // that atoms are dealt to: how many workers there can be
  LaneRange own_lanes{};  // of this worker
  ShardingOptions sharding{};
  ModelPlace place{};   // shards are of what the rank has there
  double max_norm = 0;  // gradients are scaled down to it; 0: never
  AdamWOptions adamw;   // its decay is for parameters that say so; others have none
};

std::string first_moment_name(std::string_view parameter);
std::string second_moment_name(std::string_view parameter);

// The model's only output must be "loss", a single number.
Result<Graph> training_step(const Model& whole, const StepOptions& options);

// The loss alone, without gradients, of a batch of this worker's.
Result<Graph> evaluation_step(const Model& whole, const ShardingOptions& sharding = {},
                              const ModelPlace& place = {});

// What the rank has of the model's parameters, in their order.
Result<std::vector<LocalTensor>> parameter_parts(const Model& model, const ModelPlace& place);

}  // namespace tutti
