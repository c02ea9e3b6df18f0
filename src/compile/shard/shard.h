// One graph for the whole tensors becomes the graph that every rank of a mesh runs on its parts.
//
//   TRY(ShardMesh mesh, ShardMesh::parse("dp=2,tp=2"));
//   TRY(ShardedGraph step, shard(graph, mesh, preset_rules(mesh)));
//
// Rules (rules.h) say which dimensions axes split. Each operation's work is divided by the same
// rules (op_space.h); operands are brought into the layout that it needs, and results are partial
// sums until somebody needs the sum: what is added to others or scaled stays partial, so that
// gradients are summed once, behind all rounds that add to them. Ranks have one graph; only
// own_slice tells them apart, and local_graph() writes it as the slice that it is on a rank.
//
// It is for graphs as they are traced and differentiated, before other passes.
#pragma once

#include <string>
#include <vector>

#include "compile/graph.h"
#include "compile/shard/mesh.h"
#include "compile/shard/reshard.h"
#include "compile/shard/rules.h"
#include "compile/shard/sharding.h"

namespace tutti {

struct ShardOptions {
  int64_t reshard_limit = kReshardLimit;  // bytes that an operand may be gathered to
  bool whole_data = false;                // every rank is given all of what is no state
};

struct ShardedGraph {
  Graph graph;
  // In the order of the graph's. The next value of a state lies as the state does.
  std::vector<TensorSharding> inputs;
  std::vector<TensorSharding> outputs;
};

// What does not divide, or would gather too much, is an error that names the input or the user's
// line.
Result<ShardedGraph> shard(const Graph& graph, const ShardMesh& mesh, const ShardRules& rules,
                           const ShardOptions& options = {});

Graph local_graph(const Graph& sharded, const ShardMesh& mesh, int64_t rank);
// The same for programs: own slices only know which they are until passes are done, so that passes
// do the same on all ranks and these still meet.
Graph graph_of_rank(const Graph& sharded, const ShardMesh& mesh, int64_t rank);

// What a rank has of an input or output.
struct LocalTensor {
  std::string name;
  Type whole;
  TensorSharding sharding;
  Type local;
  // For each dimension, which of its places: one range, or one of each segment, side by side.
  std::vector<std::vector<PlaceRange>> places;
};
LocalTensor local_tensor(std::string name, const Type& whole, const TensorSharding& sharding,
                         const ShardMesh& mesh, int64_t rank);
std::vector<LocalTensor> local_inputs(const Graph& whole, const ShardedGraph& sharded,
                                      const ShardMesh& mesh, int64_t rank);
std::vector<LocalTensor> local_outputs(const Graph& whole, const ShardedGraph& sharded,
                                       const ShardMesh& mesh, int64_t rank);

// How all inputs and outputs lie, a line for each, as comments of a graph's text.
std::string layouts_text(const Graph& whole, const ShardedGraph& sharded);

}  // namespace tutti
