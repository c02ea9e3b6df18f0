// The gradients of a step's atoms, summed in one order whoever computes how many of them.
//
// Atoms are dealt to lanes, as many to each. Within a lane they are added from the first to the
// last, beginning with zero where there are several; the one tree of the fabric
// (fabric/fold_tree.h) joins lanes. A worker has lanes side by side: of each whole node of the tree
// among them it makes the sum, and the rest is done together with the others.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compile/builder.h"
#include "compile/model.h"
#include "fabric/fold_tree.h"
#include "train/shards.h"

namespace tutti {

// What a step's gradients are, whatever they were made of.
struct Gradients {
  Tensor loss;
  std::vector<Tensor> of;  // of each parameter

  std::vector<Tensor> all() const;  // the loss first
};

// The gradients of one atom, as outputs of the builder's graph until now.
Gradients take_gradients(Builder& b, const Model& model);

struct LaneFoldOptions {
  uint32_t lanes = 1;
  LaneRange own{};            // of this worker
  int64_t atoms_of_lane = 1;  // as many in each
  // Of shards of weights that are gathered for all lanes at once.
  std::optional<ShardingOptions> gathers{};
};

// Adds to the builder's graph the model's data, of all atoms of the worker's lanes along a first
// dimension "atom", and its states. Gives the sums of the whole nodes, in their order.
// `differentiated` is the model with its gradients as outputs; whose states may be shards.
Result<std::vector<Gradients>> fold_lanes(Builder& b, const Model& model,
                                          const Graph& differentiated,
                                          const LaneFoldOptions& options);

// What a collective over lanes is told.
Attributes lane_attributes(const LaneFoldOptions& options);

}  // namespace tutti
