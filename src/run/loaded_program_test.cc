#include "run/loaded_program.h"

#include <cstring>

#include "compile/autodiff.h"
#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "compile/tiny_gpt_test.h"
#include "kernels/gemm.h"
#include "kernels/simd_targets.h"
#include "run/memory_test.h"
#include "world/real/native_compiler.h"
#include "world/real/thread_team.h"

using namespace tutti;

namespace {

// The outputs of a graph as this machine computes them.
std::vector<Array> execute(const Graph& graph, const std::vector<Array>& inputs, int threads) {
  auto program = lower_to_program(optimize(graph));
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  ThreadTeam team(threads);
  const auto compiler = make_native_compiler();
  auto loaded = LoadedProgram::make(*program, team, *compiler);
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
  ProgramMemory memory(**loaded, inputs);
  const auto done = (*loaded)->run(memory.inputs(), memory.outputs(), memory.arena());
  REQUIRE_MESSAGE(done.has_value(), done.error().text());
  return memory.results();
}

void check_execution(const Graph& graph, double tolerance) {
  const auto inputs = inputs_of(graph);
  const auto expected = run(graph, inputs);
  const auto results = execute(graph, inputs, 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(graph.outputs[i].name);
    check_close(results[i], expected[i], tolerance);
  }
  const auto by_two = execute(graph, inputs, 2);
  for (size_t i = 0; i < results.size(); ++i) CHECK(by_two[i].values == results[i].values);
}

Graph step_of_tiny_gpt(const TinyGptSizes& sizes = {}) {
  const Graph graph = tiny_gpt(3, sizes);
  Names names;
  for (const Input& input : graph.inputs)
    if (input.role == InputRole::state) names.push_back(input.name);
  auto with = differentiate(graph, "loss", names);
  REQUIRE(with.has_value());
  return *with;
}

}  // namespace

TEST_CASE("generated kernels compute what operations say") {
  std::string ops;
  std::string outputs;
  const auto add = [&](const std::string& name, const std::string& op) {
    ops += "  %" + name + " = " + op + "\n";
    outputs += (outputs.empty() ? " %" : ", %") + name + " as \"" + name + "\"";
  };
  for (const std::string op : {"neg", "abs", "sign", "exp", "tanh", "erf", "sin", "cos", "floor"})
    add(op, op + "(%x)");
  ops += "  %p = exp(%x)\n";
  for (const std::string op : {"log", "sqrt", "rsqrt"}) add(op, op + "(%p)");
  for (const std::string op : {"add", "sub", "mul", "div", "max", "min"}) add(op, op + "(%x, %y)");
  add("pow", "pow(%p, %y)");
  add("less", "less(%x, %y)");
  add("select", "select(%less, %x, %y)");
  add("as_int", "cast(%add) : i32[m=3, n=37]");
  add("as_half", "cast(%add) : bf16[m=3, n=37]");
  add("whole", "cast(%as_int) : f32[m=3, n=37]");
  add("total", "sum(%mul) {dims=[\"n\"]}");
  add("highest", "reduce_max(%mul) {dims=[\"n\"]}");
  // What fills up a row's last vector must not be counted.
  ops += "  %below = neg(%p)\n";
  add("total_of_all", "sum(%p) {dims=[\"n\"]}");
  add("highest_below", "reduce_max(%below) {dims=[\"n\"]}");
  ops += "  %b = broadcast(%total) : f32[m=3, n=37]\n";
  add("rest", "sub(%mul, %b)");
  add("column", "iota() {dim=\"n\"} : i32[m=3, n=37]");
  add("random", "random(%s) {seed=3, stream=\"s\"} : u32[m=3, n=37]");
  check_execution(graph_of("graph g(%x: f32[m=3, n=37], %y: f32[m=3, n=37], %s: i64[]) {\n" + ops +
                           "  return" + outputs + "\n}"),
                  2e-6);
}

TEST_CASE("rows are put into caches however both lie") {
  check_execution(graph_of(R"(graph g(%c: f32[b=2, t=5, n=3], %r: f32[n=3, b=2, t=2],
      %p: i64[b=2], %one: i64[], %w: f32[t=4] state, %v: f32[t=2]) {
    %rows = transpose(%r) {order=["b", "t", "n"]}
    %a = update(%c, %rows, %p) {dim="t"}
    %turned = transpose(%c) {order=["n", "b", "t"]}
    %b = update(%turned, %r, %one) {dim="t"}
    %next = update(%w, %v, %one) {dim="t"}
    return %a as "a", %b as "b", %next as "w"
  })"),
                  0);
}

TEST_CASE("a small GPT's step is executed as its graph says, the same with one and two threads") {
  check_execution(step_of_tiny_gpt(), 1e-5);
}

TEST_CASE("a small GPT's step has the same bits with every instruction set the processor has") {
  // Large enough for packing, whole tiles and vectors, and what remains of them.
  const Graph graph = step_of_tiny_gpt(
      {.batch = 3, .time = 23, .heads = 5, .head = 22, .vocab = 117, .hidden = 130});
  const auto inputs = inputs_of(graph);
  const auto expected = execute(graph, inputs, 1);
  for (const char* target : simd_targets())
    for (const char* product : gemm_kernels()) {
      const std::string named = target;
      CAPTURE(named);
      const std::string multiplies = product;
      CAPTURE(multiplies);
      use_simd_target(target);
      use_gemm_kernel(product);
      const auto results = execute(graph, inputs, 2);
      for (size_t i = 0; i < expected.size(); ++i) CHECK(results[i].values == expected[i].values);
    }
  use_simd_target(simd_targets().back());
  use_gemm_kernel(gemm_kernels().back());
}
