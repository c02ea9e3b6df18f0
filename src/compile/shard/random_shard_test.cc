// Graphs at random on meshes at random, by rules at random: the same as on one rank.
#include "compile/shard/random_shard_test.h"

using namespace tutti;

namespace {

// Gives how often ranks met.
std::map<std::string, int> check(uint64_t seed, bool sums) {
  CAPTURE(seed);
  const auto [graph, mesh, rules] = random_case(seed, sums);
  CAPTURE(mesh.text());
  CAPTURE(rules_text(rules));
  const ShardedGraph made = sharded(graph, mesh, rules);
  CHECK(graph_of(made.graph.text()).text() == made.graph.text());
  const auto inputs = inputs_of(graph, seed);
  const Precision precision = sums ? Precision::wide : Precision::typed;
  const auto expected = run(graph, inputs, precision);
  const auto results = run_on_ranks(graph, made, mesh, inputs, precision);
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(graph.outputs[i].name);
    if (sums)
      check_close(results[i], expected[i], 1e-9);
    else
      CHECK(results[i].values == expected[i].values);
  }
  return meetings(made.graph);
}

}  // namespace

TEST_CASE("any graph on any mesh by any rules, with its gradients, is the graph on one rank") {
  std::map<std::string, int> all;
  for (uint64_t seed = 0; seed < 150; ++seed)
    for (const auto& [name, count] : check(seed, true)) all[name] += count;
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
    CHECK(all[name] > 50);
}

TEST_CASE("what adds nothing over dimensions has the same bits on any mesh") {
  for (uint64_t seed = 0; seed < 150; ++seed) check(seed, false);
}
