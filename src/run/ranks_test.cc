// Programs of ranks that meet over a fabric, as interpret_ranks() has them.
#include "compile/program/lower.h"
#include "compile/shard/fused_gpt_test.h"
#include "compile/shard/random_shard_test.h"
#include "fabric/fabric_fixture_test.h"
#include "run/fabric_communicator.h"
#include "run/memory_test.h"
#include "world/real/thread_team.h"

using namespace tutti;

namespace {

std::vector<uint32_t> group_of(const ShardMesh& mesh, int64_t rank, const std::string& axis) {
  std::vector<uint32_t> all;
  for (const int64_t member : mesh.group(rank, axis)) all.push_back(static_cast<uint32_t>(member));
  return all;
}

// What every rank's program makes of its inputs, by rank; each is a thread with a device of its
// own.
std::vector<std::vector<Array>> executed(const Graph& graph, const ShardMesh& mesh,
                                         const std::vector<std::vector<Array>>& inputs,
                                         int threads = 1) {
  std::vector<std::vector<Array>> results(inputs.size());
  SharedHost host(static_cast<uint32_t>(mesh.ranks()), 64 << 20);
  host.run([&](Fabric& fabric) {
    const auto rank = static_cast<int64_t>(fabric.rank());
    auto program = lower_to_program(optimize(graph_of_rank(graph, mesh, rank)));
    REQUIRE_MESSAGE(program.has_value(), program.error().text());
    ThreadTeam team(threads);
    TestDevice device(team);
    auto loaded = device.cpu.load(*program);
    REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
    std::map<std::string, std::shared_ptr<Group>, std::less<>> groups;
    for (const ShardAxis& axis : mesh.axes()) {
      auto group = fabric.group(group_of(mesh, rank, axis.name), axis.name);
      REQUIRE_MESSAGE(group.has_value(), group.error().text());
      groups.emplace(axis.name, *group);
    }
    FabricCommunicator communicator(std::move(groups), fabric.parking());
    ProgramMemory memory(**loaded, inputs[fabric.rank()]);
    ProgramCall call = memory.call();
    call.communicator = &communicator;
    const auto done = (*loaded)->run(call);
    REQUIRE_MESSAGE(done.has_value(), done.error().text());
    results[fabric.rank()] = memory.results();
  });
  return results;
}

std::vector<std::vector<Array>> dealt(const Graph& graph, const ShardedGraph& made,
                                      const ShardMesh& mesh, const std::vector<Array>& inputs) {
  std::vector<std::vector<Array>> given;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
    given.push_back(inputs_of_rank(graph, made, mesh, inputs, rank));
  return given;
}

void check_executed(const Graph& graph, const ShardMesh& mesh, const ShardRules& rules,
                    const std::vector<Array>& inputs, int threads = 1) {
  const ShardedGraph made = sharded(graph, mesh, rules);
  const auto given = dealt(graph, made, mesh, inputs);
  const auto expected = interpret_ranks(made.graph, mesh, given);
  REQUIRE_MESSAGE(expected.has_value(), expected.error().text());
  const auto results = executed(made.graph, mesh, given, threads);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    for (size_t i = 0; i < results[rank].size(); ++i) {
      CAPTURE(rank);
      CAPTURE(graph.outputs[i].name);
      check_close(results[rank][i], (*expected)[rank][i], 1e-4);
    }
  }
}

}  // namespace

TEST_CASE("programs meet along any dimension, as the interpreter of all ranks has it") {
  const struct {
    const char* op;
    const char* made;
  } kOps[] = {
      {"all_reduce(%y) {axis=\"x\", ranks=2}", "f32[a=3, b=4, c=2]"},
      {"all_reduce(%y) {axis=\"y\", op=\"max\", ranks=2}", "f32[a=3, b=4, c=2]"},
      {"all_gather(%y) {axis=\"x\", dim=\"a\", ranks=2}", "f32[a=6, b=4, c=2]"},
      {"all_gather(%y) {axis=\"y\", dim=\"b\", ranks=2}", "f32[a=3, b=8, c=2]"},
      {"all_gather(%y) {axis=\"y\", dim=\"c\", ranks=2}", "f32[a=3, b=4, c=4]"},
      {"reduce_scatter(%y) {axis=\"x\", dim=\"b\", ranks=2}", "f32[a=3, b=2, c=2]"},
      {"reduce_scatter(%y) {axis=\"y\", dim=\"c\", ranks=2}", "f32[a=3, b=4, c=1]"},
      {"all_to_all(%y) {axis=\"x\", from=\"a\", ranks=2, to=\"b\"}", "f32[a=6, b=2, c=2]"},
      {"all_to_all(%y) {axis=\"y\", from=\"c\", ranks=2, to=\"b\"}", "f32[a=3, b=2, c=4]"},
      {"all_to_all(%y) {axis=\"x\", from=\"b\", ranks=2, to=\"c\"}", "f32[a=3, b=8, c=1]"},
      {"own_slice(%y) {axis=\"y\", dim=\"b\", ranks=2}", "f32[a=3, b=2, c=2]"},
  };
  const ShardMesh mesh = mesh_of("x=2,y=2");
  for (const auto& [op, made] : kOps) {
    CAPTURE(op);
    const Graph graph = graph_of(fmt::format(R"(graph g(%v: f32[c=2, b=4, a=3]) {{
      %t = transpose(%v) {{order=["a", "b", "c"]}}
      %y = mul(%t, %t)
      %m = {}
      %z = neg(%m)
      return %z as "z", %m as "m"
    }})",
                                             op));
    CHECK(graph.type(graph.outputs[1].value).text() == made);
    std::vector<std::vector<Array>> given;
    for (uint64_t rank = 0; rank < 4; ++rank) given.push_back(inputs_of(graph, rank));
    const auto expected = interpret_ranks(graph, mesh, given);
    REQUIRE_MESSAGE(expected.has_value(), expected.error().text());
    const auto results = executed(graph, mesh, given);
    for (size_t rank = 0; rank < 4; ++rank)
      for (size_t i = 0; i < 2; ++i) CHECK(results[rank][i].values == (*expected)[rank][i].values);
  }
}

TEST_CASE("programs of graphs at random on meshes at random are what the interpreter has") {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const auto [graph, mesh, rules] = random_case(seed, seed % 2 == 0);
    CAPTURE(mesh.text());
    CAPTURE(rules_text(rules));
    check_executed(graph, mesh, rules, inputs_of(graph, seed));
  }
}

TEST_CASE("a step of a small GPT on ranks is what the interpreter has") {
  const Graph step = step_of(FusedGpt({.layers = 2}).model());
  const auto inputs = step_inputs(step);
  for (const char* text : {"tp=2", "dp=2,tp=2", "fsdp=2,tp=2", "tp=4"}) {
    CAPTURE(text);
    const ShardMesh mesh = mesh_of(text);
    check_executed(step, mesh, preset_rules(mesh), inputs, 2);
  }
}

TEST_CASE("a graph of all ranks is no program before it is one rank's") {
  const Graph graph = graph_of(R"(graph g(%x: f32[a=4]) {
    %y = own_slice(%x) {axis="x", dim="a", ranks=2}
    return %y as "y"
  })");
  const auto program = lower_to_program(graph);
  REQUIRE_FALSE(program.has_value());
  CHECK(program.error().text().find("a program is of one rank") != std::string::npos);
}
