#include "run/cpu_device.h"

#include <cstring>

#include "compile/autodiff.h"
#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "compile/tiny_gpt_test.h"
#include "run/epoch_fixture_test.h"
#include "run/memory_test.h"
#include "world/real/thread_team.h"

using namespace tutti;

namespace {

// The outputs of a graph as this machine computes them.
std::vector<Array> execute(const Graph& graph, const std::vector<Array>& inputs, int threads) {
  auto program = lower_to_program(optimize(graph));
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  ThreadTeam team(threads);
  TestDevice device(team);
  auto loaded = device.cpu.load(*program);
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
  ProgramMemory memory(**loaded, inputs);
  const auto done = (*loaded)->run(memory.call());
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

TEST_CASE("gradients of inputs and those of weights have the same bits apart as together") {
  const Graph graph = graph_of(R"(graph g(%x: f32[t=70, e=24], %s: f32[e=24], %b: f32[e=24],
      %r: f32[e=24], %w: f32[v=37, e=24], %i: i32[t=70]) {
    %y, %m, %d = layer_norm(%x, %s, %b) {dim="e", epsilon=0.1}
    %z, %q = rms_norm(%y, %r) {dim="e", epsilon=0.1}
    %l = linear_cross_entropy(%z, %w, %i) {over="e", vocab="v"}
    %loss = sum(%l) {dims=["t"]}
    return %loss as "loss"
  })");
  auto both = differentiate(graph, "loss", {"x", "s", "b", "r", "w"});
  REQUIRE(both.has_value());
  REQUIRE(optimize(*both).text().find("part=") == std::string::npos);
  const auto inputs = inputs_of(graph);
  const auto expected = execute(*both, inputs, 2);
  for (size_t i = 0; i < both->outputs.size(); ++i) {
    Graph alone = *both;
    alone.outputs = {both->outputs[i]};
    CAPTURE(alone.outputs[0].name);
    const Graph made = optimize(alone);
    CHECK((i == 0 || made.text().find("part=") != std::string::npos));
    const auto result = execute(alone, inputs, 2);
    CHECK(result[0].values == expected[i].values);
    check_close(result[0], run(alone, inputs)[0], 1e-5);
  }
}

TEST_CASE("a small GPT's step is executed as its graph says, the same with one and two threads") {
  const Graph graph = tiny_gpt(3);
  Names names;
  for (const Input& input : graph.inputs)
    if (input.role == InputRole::state) names.push_back(input.name);
  auto with = differentiate(graph, "loss", names);
  REQUIRE(with.has_value());
  check_execution(*with, 1e-5);
}

namespace {

// Some operations, a norm to decide by, and a state that is written last.
Graph decided_graph() {
  return graph_of(R"(graph g(%x: f32[n=5000], %w: f32[n=5000] state) {
    %a = mul(%x, %w)
    %t = sum(%a) {dims=["n"]}
    %b = broadcast(%t) : f32[n=5000]
    %c = sub(%a, %b)
    %norm = squared_norm(%c)
    %d = broadcast(%norm) : f32[n=5000]
    %e = mul(%c, %d)
    %next = sub(%w, %e)
    return %next as "w", %norm as "norm"
  })");
}

struct Aborted {
  TestPage page;
  AbortedTeam team{2, page};
  TestDevice device{team};
  std::unique_ptr<LoadedProgram> loaded;

  explicit Aborted(const Graph& graph) {
    auto program = lower_to_program(optimize(graph));
    REQUIRE_MESSAGE(program.has_value(), program.error().text());
    auto made = device.cpu.load(*std::move(program));
    REQUIRE_MESSAGE(made.has_value(), made.error().text());
    loaded = *std::move(made);
  }

  // Runs in a new epoch, which ends at a meeting of the threads, or not at all.
  Result<void> run(const ProgramMemory& memory, int abort_at) {
    page.begin(page.page.epoch + 1);
    const EpochWatch watch = page.watch();
    team.meetings = 0;
    team.abort_at = abort_at;
    ProgramCall call = memory.call();
    call.epoch = &watch;
    return loaded->run(call);
  }
};

}  // namespace

TEST_CASE(
    "when its epoch ends a program stops at the next meeting, and what was decided does not") {
  const Graph graph = decided_graph();
  Aborted aborted(graph);
  const auto inputs = inputs_of(graph);
  const ProgramMemory whole(*aborted.loaded, inputs);
  REQUIRE(aborted.run(whole, 0).has_value());
  const int meetings = aborted.team.meetings;
  int stopped = 0;
  for (int at = 1; at <= meetings; ++at) {
    const ProgramMemory memory(*aborted.loaded, inputs);
    const auto done = aborted.run(memory, at);
    CAPTURE(at);
    if (done.has_value()) {
      CHECK(memory.results()[0].values == whole.results()[0].values);
      continue;
    }
    ++stopped;
    CHECK(
        done.error().text().starts_with(fmt::format("aborted(epoch {})", aborted.page.page.epoch)));
    CHECK(aborted.team.meetings <= at + 1);  // the epoch ended after the threads had looked
    CHECK(memory.results()[0].values == inputs[1].values);
    // Nothing of it is left: the same memory, in the next epoch.
    REQUIRE(aborted.run(memory, 0).has_value());
    CHECK(memory.results()[0].values == whole.results()[0].values);
  }
  CHECK(stopped > 0);
  CHECK(stopped < meetings);  // after the decision it is rolled forward
}

TEST_CASE("a program does not begin in an epoch that is over") {
  const Graph graph = decided_graph();
  Aborted aborted(graph);
  const ProgramMemory memory(*aborted.loaded, inputs_of(graph));
  const EpochWatch watch = aborted.page.watch();
  aborted.page.abort();
  ProgramCall call = memory.call();
  call.epoch = &watch;
  CHECK_FALSE(aborted.loaded->run(call).has_value());
  CHECK(aborted.team.meetings == 0);
}

TEST_CASE("threads that fail at different times leave together") {
  // Each part of the second operation refuses what it is given, while the first may still be left.
  const Graph graph = graph_of(R"(graph g(%x: f32[t=64, n=8], %ids: i32[m=64]) {
    %y = exp(%x)
    %z = gather(%y, %ids) {dim="t"}
    return %z as "z"
  })");
  Aborted aborted(graph);
  std::vector<Array> inputs = inputs_of(graph);
  for (double& id : inputs[1].values) id = 99;
  for (int i = 0; i < 500; ++i) {
    const ProgramMemory memory(*aborted.loaded, inputs);
    CHECK(aborted.run(memory, 0).error().code() == Code::invalid);
  }
}
