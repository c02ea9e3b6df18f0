// Generated kernels beside the interpreter: reductions of every kind of number, angles far from 0,
// and models at random.
#include <algorithm>
#include <cmath>
#include <string>

#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "compile/random_graph_test.h"
#include "run/memory_test.h"
#include "world/real/thread_team.h"

using namespace tutti;

namespace {

// The outputs of a graph as kernels for these instructions compute them; the processor's if empty.
std::vector<Array> execute(const Graph& graph, const std::vector<Array>& inputs,
                           const std::string& instructions = "") {
  auto program = lower_to_program(optimize(graph));
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  ThreadTeam team(2);
  const auto compiler = make_native_compiler({.instructions = instructions});
  TestProcessMemory memory;
  CpuDevice device(team, *compiler, memory);
  auto loaded = device.load(*std::move(program));
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
  const ProgramMemory room(**loaded, inputs);
  const auto done = (*loaded)->run(room.call());
  REQUIRE_MESSAGE(done.has_value(), done.error().text());
  return room.results();
}

}  // namespace

TEST_CASE("small models at random are compiled and run as their graphs say") {
  // In one graph, which takes one run of the compiler.
  const Graph graph = random_models(1001, 5);
  const auto inputs = inputs_of(graph);
  const auto expected = run(graph, inputs);
  const auto results = execute(graph, inputs);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(graph.outputs[i].name);
    check_close(results[i], expected[i], 2e-4);
  }
}
