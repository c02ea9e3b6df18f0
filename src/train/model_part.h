// What a rank has of a model whose work several ranks divide: by the sharding pass, its graph of
// the same samples, and of each parameter some places.
#pragma once

#include <functional>
#include <vector>

#include "compile/model.h"
#include "compile/shard/shard.h"

namespace tutti {

// A rank among those that have the same samples.
struct ModelPlace {
  ShardMesh mesh{};
  ShardRules rules{};
  int64_t rank = 0;

  bool alone() const { return mesh.ranks() == 1; }
};

struct ModelPart {
  Graph graph;  // which is given all of the data
  // Of the model's, in their order. A gradient lies as its parameter.
  std::vector<LocalTensor> parameters;

  // The model's, with the types that they have on this rank.
  std::vector<Parameter> own(const Model& model) const;
};

// Of a graph of the model's: its loss, or its gradients.
Result<ModelPart> part_of_model(const Graph& graph, const Model& model, const ModelPlace& place);

// Whether two graphs of the model have the same places of it on a rank. Code::internal names what
// they have not.
Result<void> check_alike(const std::vector<LocalTensor>& parameters,
                         const std::vector<LocalTensor>& others);

// Elements that are side by side in a part and in the whole: where they begin in each.
using RunVisit = std::function<void(int64_t in_part, int64_t in_whole, int64_t count)>;
// All of them that are among so many elements of the part.
void each_run(const LocalTensor& tensor, int64_t first, int64_t count, const RunVisit& visit);

}  // namespace tutti
