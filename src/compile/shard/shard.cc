#include "compile/shard/shard.h"

#include <fmt/format.h>

#include "base/assert.h"
#include "compile/collective.h"
#include "compile/passes/passes.h"
#include "compile/rewrite.h"
#include "compile/shard/dim_table.h"
#include "compile/shard/graph_sharder.h"
#include "compile/verify.h"

namespace tutti {

LocalTensor local_tensor(std::string name, const Type& whole, const TensorSharding& sharding,
                         const ShardMesh& mesh, int64_t rank) {
  LocalTensor tensor{.name = std::move(name),
                     .whole = whole,
                     .sharding = sharding,
                     .local = local_type(whole, sharding, mesh),
                     .places = {}};
  for (size_t i = 0; i < whole.dims.size(); ++i)
    tensor.places.push_back(places_of(sharding.dims[i], whole.dims[i].size, mesh, rank));
  return tensor;
}

Result<ShardedGraph> shard(const Graph& graph, const ShardMesh& mesh, const ShardRules& rules,
                           const ShardOptions& options) {
  const Graph used = remove_unused(graph);
  const DimTable table(used, mesh, rules);
  ShardedGraph sharded;
  for (const Input& input : used.inputs) {
    const std::string what = (input.role == InputRole::state ? "state " : "input ") + input.name;
    TRY(TensorSharding lies, table.of_input(what, used.type(input.value)));
    if (options.whole_data && input.role == InputRole::data)
      lies = whole_sharding(used.type(input.value));
    sharded.inputs.push_back(std::move(lies));
  }
  for (const Output& output : used.outputs) {
    TensorSharding lies = table.of(used.type(output.value));
    for (size_t i = 0; i < used.inputs.size(); ++i)
      if (used.inputs[i].role == InputRole::state && used.inputs[i].name == output.name)
        lies = sharded.inputs[i];
    sharded.outputs.push_back(std::move(lies));
  }
  const ShardContext context{mesh, table, options.reshard_limit};
  GraphSharder sharder(used, context, sharded.inputs);
  TRY_DO(sharder.run());
  TRY(Graph local, std::move(sharder).finish(sharded.outputs));
  sharded.graph = remove_unused(local);
  const auto checked = verify(sharded.graph);
  TUTTI_ASSERT(checked.has_value(), "sharding keeps a graph right");
  return sharded;
}

Graph graph_of_rank(const Graph& sharded, const ShardMesh& mesh, int64_t rank) {
  Rewrite rewrite(sharded);
  for (const Node& op : sharded.ops) {
    Node its = op;
    if (op.kind == OpKind::own_slice)
      its.attributes.set(kOwnIndex, mesh.coordinate(rank, collective_axis(op)));
    rewrite.copy(its, rewritten_body(
                          op, [&](const Graph& body) { return graph_of_rank(body, mesh, rank); }));
  }
  return std::move(rewrite).finish();
}

Graph local_graph(const Graph& sharded, const ShardMesh& mesh, int64_t rank) {
  return take_own_slices(graph_of_rank(sharded, mesh, rank));
}

std::vector<LocalTensor> local_inputs(const Graph& whole, const ShardedGraph& sharded,
                                      const ShardMesh& mesh, int64_t rank) {
  std::vector<LocalTensor> all;
  for (size_t i = 0; i < whole.inputs.size(); ++i)
    all.push_back(local_tensor(whole.inputs[i].name, whole.type(whole.inputs[i].value),
                               sharded.inputs[i], mesh, rank));
  return all;
}

std::vector<LocalTensor> local_outputs(const Graph& whole, const ShardedGraph& sharded,
                                       const ShardMesh& mesh, int64_t rank) {
  std::vector<LocalTensor> all;
  for (size_t i = 0; i < whole.outputs.size(); ++i)
    all.push_back(local_tensor(whole.outputs[i].name, whole.type(whole.outputs[i].value),
                               sharded.outputs[i], mesh, rank));
  return all;
}

std::string layouts_text(const Graph& whole, const ShardedGraph& sharded) {
  std::string text;
  for (size_t i = 0; i < whole.inputs.size(); ++i)
    text += fmt::format("# {}: {}\n", whole.inputs[i].name,
                        sharding_text(whole.type(whole.inputs[i].value), sharded.inputs[i]));
  for (size_t i = 0; i < whole.outputs.size(); ++i) {
    const Output& output = whole.outputs[i];
    const Input* state = whole.input(output.name);
    if (state == nullptr || state->role != InputRole::state)
      text += fmt::format("# gives {}: {}\n", output.name,
                          sharding_text(whole.type(output.value), sharded.outputs[i]));
  }
  return text;
}

}  // namespace tutti
