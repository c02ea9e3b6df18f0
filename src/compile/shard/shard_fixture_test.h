// Runs graphs on all ranks of a mesh, for tests.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/shard/interpret_ranks.h"
#include "compile/shard/shard.h"

namespace tutti {

inline ShardMesh mesh_of(std::string_view text) {
  auto mesh = ShardMesh::parse(text);
  REQUIRE_MESSAGE(mesh.has_value(), mesh.error().text());
  return *std::move(mesh);
}

inline ShardRules rules_of(std::string_view text, const ShardMesh& mesh) {
  auto rules = parse_rules(text, mesh);
  REQUIRE_MESSAGE(rules.has_value(), rules.error().text());
  return *std::move(rules);
}

inline ShardedGraph sharded(const Graph& graph, const ShardMesh& mesh, const ShardRules& rules) {
  auto made = shard(graph, mesh, rules);
  REQUIRE_MESSAGE(made.has_value(), made.error().text());
  return *std::move(made);
}

// For each element that a rank has, in its order, the place in the whole tensor.
inline std::vector<size_t> places_in_whole(const LocalTensor& tensor) {
  std::vector<size_t> places{0};
  for (size_t dim = 0; dim < tensor.whole.dims.size(); ++dim) {
    std::vector<size_t> next;
    for (const size_t place : places)
      for (const PlaceRange& range : tensor.places[dim])
        for (int64_t i = 0; i < range.size; ++i)
          next.push_back(place * static_cast<size_t>(tensor.whole.dims[dim].size) +
                         static_cast<size_t>(range.start + i));
    places = std::move(next);
  }
  REQUIRE(std::cmp_equal(places.size(), tensor.local.elements()));
  return places;
}

// Of the inputs, what a rank has.
inline std::vector<Array> inputs_of_rank(const Graph& graph, const ShardedGraph& made,
                                         const ShardMesh& mesh, const std::vector<Array>& inputs,
                                         int64_t rank) {
  std::vector<Array> its;
  const auto locals = local_inputs(graph, made, mesh, rank);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Array part{locals[i].local, {}};
    for (const size_t place : places_in_whole(locals[i]))
      part.values.push_back(inputs[i].values[place]);
    its.push_back(std::move(part));
  }
  return its;
}

// What all ranks have together, of which copies have to be equal. Ranks run the graph they share,
// or each its own.
inline std::vector<Array> run_on_ranks(const Graph& graph, const ShardedGraph& made,
                                       const ShardMesh& mesh, const std::vector<Array>& inputs,
                                       Precision precision = Precision::typed,
                                       const std::vector<Graph>& own = {}) {
  std::vector<const Graph*> graphs(static_cast<size_t>(mesh.ranks()), &made.graph);
  for (size_t rank = 0; rank < own.size(); ++rank) graphs[rank] = &own[rank];
  std::vector<std::vector<Array>> given;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
    given.push_back(inputs_of_rank(graph, made, mesh, inputs, rank));
  auto results = interpret_ranks(graphs, mesh, std::move(given), precision);
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  std::vector<Array> outputs;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Type& type = graph.type(graph.outputs[i].value);
    Array whole{type, std::vector<double>(static_cast<size_t>(type.elements()))};
    std::vector<bool> there(whole.values.size());
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      const auto places = places_in_whole(local_outputs(graph, made, mesh, rank)[i]);
      const Array& part = (*results)[static_cast<size_t>(rank)][i];
      REQUIRE(part.values.size() == places.size());
      for (size_t j = 0; j < places.size(); ++j) {
        if (there[places[j]]) REQUIRE(whole.values[places[j]] == part.values[j]);
        whole.values[places[j]] = part.values[j];
        there[places[j]] = true;
      }
    }
    REQUIRE(std::ranges::count(there, false) == 0);
    outputs.push_back(std::move(whole));
  }
  return outputs;
}

// How often ranks meet, by operation; those of a round once.
inline std::map<std::string, int> meetings(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& op : graph.ops) {
    if (op.body != nullptr)
      for (const auto& [name, count] : meetings(*op.body)) counts[name] += count;
    if (op_class(op.kind) == OpClass::collective && op.kind != OpKind::own_slice)
      ++counts[std::string(op_info(op.kind).name)];
  }
  return counts;
}

// Of a step of training: second moments are squares, and it is the second step.
inline std::vector<Array> step_inputs(const Graph& step) {
  auto inputs = inputs_of(step);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = step.inputs[i].name;
    if (name.starts_with("second/"))
      for (double& value : inputs[i].values) value = value * value + 0.1;
    if (name == "step") inputs[i].values = {2};
    if (name == "rate") inputs[i].values = {0.125};
  }
  return inputs;
}

}  // namespace tutti
