// Generated kernels beside the interpreter: reductions of every kind of number, angles far from 0,
// and models at random.
#include <fmt/format.h>

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

// Alone and with what comes before in one kernel, over rows, columns, both and all.
std::string reductions_of(const std::string& type) {
  std::string ops = fmt::format(
      "%two = constant() {{value=2.0}} : {}[m=3, n=37, k=5] %y = sub(%x, %two) %s = sign(%y) "
      "%z = abs(%s)\n",
      type);
  std::string outputs = "%s as \"sign\", %z as \"abs\"";
  int made = 0;
  for (const std::string dims :
       {R"("k")", R"("n", "k")", R"("m")", R"("m", "k")", R"("m", "n", "k")"})
    for (const std::string op : {"sum", "reduce_max"})
      for (const std::string of : {"x", "y"}) {
        const std::string name = "r" + std::to_string(made++);
        ops += fmt::format("%{} = {}(%{}) {{dims=[{}]}}\n", name, op, of, dims);
        outputs += fmt::format(", %{0} as \"{0}\"", name);
      }
  return fmt::format("graph g(%x: {}[m=3, n=37, k=5]) {{ {} return {} }}", type, ops, outputs);
}

}  // namespace

TEST_CASE("sums and maxima of every kind of number are compiled") {
  for (const std::string type : {"i32", "i64", "u32", "u8", "f32", "bf16", "f16"}) {
    CAPTURE(type);
    const Graph graph = graph_of(reductions_of(type));
    const auto inputs = inputs_of(graph);
    const auto expected = run(graph, inputs);
    const auto results = execute(graph, inputs);
    const bool half = type == "bf16" || type == "f16";
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(graph.outputs[i].name);
      check_close(results[i], expected[i], half ? 0.01 : type == "f32" ? 1e-5 : 0);
    }
  }
}

TEST_CASE("whole numbers are divided in every lane, and by 0 give 0") {
  for (const std::string type : {"i32", "i64", "u32", "u8"}) {
    CAPTURE(type);
    const Graph graph = graph_of(fmt::format(
        R"(graph g(%x: {0}[n=37], %d: {0}[n=37]) {{ %y = div(%x, %d) return %y as "y" }})", type));
    std::vector<Array> inputs = inputs_of(graph);
    for (double& x : inputs[0].values) x = x * 50 + 7;
    if (type[0] == 'i')
      for (size_t i = 0; i < 37; i += 3) inputs[0].values[i] *= -1;
    if (type == "i32") {
      inputs[0].values[0] = -2147483648.0;
      inputs[1].values[0] = -1;
    }
    CHECK(execute(graph, inputs)[0].values == run(graph, inputs)[0].values);
    CHECK(std::ranges::count(inputs[1].values, 0) > 0);
  }
}

TEST_CASE("sums of halves are rounded to halves, also within a kernel") {
  const Graph graph = graph_of(R"(graph g(%x: bf16[m=2, n=40]) {
    %s = sum(%x) {dims=["n"]}
    %b = broadcast(%s) : bf16[m=2, n=40]
    %y = sub(%b, %x)
    return %y as "y"
  })");
  std::vector<Array> inputs = inputs_of(graph);
  for (double& value : inputs[0].values) value = rounded(1.0 / 3 + value / 64, DType::bf16);
  CHECK(execute(graph, inputs)[0].values == run(graph, inputs)[0].values);
}

TEST_CASE("sine and cosine are right however far from 0, with the same bits everywhere") {
  const Graph graph = graph_of(R"(graph g(%x: f32[n=20001]) {
    %s = sin(%x) %c = cos(%x) return %s as "s", %c as "c" })");
  std::vector<Array> inputs = inputs_of(graph);
  std::vector<double>& x = inputs[0].values;
  for (size_t i = 0; i < x.size(); ++i)  // from 1e-6 to 1e38
    x[i] = rounded(std::copysign(std::pow(10, -6 + 44 * std::abs(x[i])), x[i]), DType::f32);
  x[0] = 1e6;
  x[1] = 8192;
  x[2] = rounded(3.4e38, DType::f32);
  const auto results = execute(graph, inputs);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max({worst, std::abs(results[0].values[i] - std::sin(x[i])),
                      std::abs(results[1].values[i] - std::cos(x[i]))});
  CHECK(worst < 1.2e-7);
  const auto narrow = execute(graph, inputs, "-msse4.1");
  CHECK(narrow[0].values == results[0].values);
  CHECK(narrow[1].values == results[1].values);
}

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
