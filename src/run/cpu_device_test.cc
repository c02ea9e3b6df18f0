#include "run/cpu_device.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>

#include "base/philox.h"
#include "compile/autodiff.h"
#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "compile/program/packing.h"
#include "compile/tiny_gpt_test.h"
#include "kernels/gemm.h"
#include "kernels/simd_targets.h"
#include "run/epoch_fixture_test.h"
#include "run/memory_test.h"
#include "world/real/thread_team.h"

using namespace tutti;

namespace {

// The outputs of a graph as the threads of a team compute them.
std::vector<Array> execute(const Graph& graph, const std::vector<Array>& inputs, Team& team) {
  auto program = lower_to_program(optimize(graph));
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  TestDevice device(team);
  auto loaded = device.cpu.load(*program);
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
  ProgramMemory memory(**loaded, inputs);
  const auto done = (*loaded)->run(memory.call());
  REQUIRE_MESSAGE(done.has_value(), done.error().text());
  return memory.results();
}

std::vector<Array> execute(const Graph& graph, const std::vector<Array>& inputs, int threads) {
  ThreadTeam team(threads);
  return execute(graph, inputs, team);
}

void check_execution(const Graph& graph, double tolerance) {
  const auto inputs = inputs_of(graph);
  const auto expected = run(graph, inputs);
  const auto results = execute(graph, inputs, 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(graph.outputs[i].name);
    check_close(results[i], expected[i], tolerance);
  }
  for (const int threads : {2, 3}) {
    const auto by_more = execute(graph, inputs, threads);
    for (size_t i = 0; i < results.size(); ++i) CHECK(by_more[i].values == results[i].values);
  }
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

TEST_CASE("a small GPT's step is executed as its graph says, the same with one to three threads") {
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

namespace {

// Twice a product with weights, which lie one way and the other; AdamW changes them.
Graph updated_graph() {
  std::string products;
  std::string returned;
  for (const std::string i : {"0", "1", "2"}) {
    products += "%a" + i + " = slice(%x) {dim=\"atom\", start=" + i + ", size=1} %x" + i +
                " = reshape(%a" + i + ") : f32[m=40, k=100] %y" + i + " = matmul(%x" + i +
                ", %w) {over=[\"k\"]} %z" + i + " = matmul(%y" + i + ", %w) {over=[\"n\"]}\n";
    returned += ", %z" + i + " as \"z" + i + "\"";
  }
  return graph_of(R"(graph g(%w: f32[k=100, n=131] state, %f: f32[k=100, n=131] state,
      %s: f32[k=100, n=131] state, %x: f32[atom=3, m=40, k=100], %d: f32[k=100, n=131],
      %rate: f32[], %step: i64[]) {
    )" + products +
                  R"(%one = constant() {value=1.0} : f32[]
    %w1, %f1, %s1 = adamw(%w, %f, %s, %d, %one, %rate, %step)
        {beta1=0.9, beta2=0.95, decay=0.1, epsilon=1e-08}
    return %w1 as "w", %f1 as "f", %s1 as "s")" +
                  returned + "}");
}

// What comes of three steps, the last of them with the first weights again.
std::vector<std::vector<Array>> three_steps(const Graph& graph, bool packed, int threads) {
  auto program = lower_to_program(optimize(graph));
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  if (packed) choose_packing(*program, {});
  CHECK(program->panels.size() == (packed ? 2 : 0));
  ThreadTeam team(threads);
  TestDevice device(team);
  auto loaded = device.cpu.load(*std::move(program));
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().text());
  std::vector<Array> inputs = inputs_of(graph);
  for (Array& array : std::span(inputs).subspan(2, 1))  // squares
    for (double& value : array.values) value = std::abs(value);
  inputs[6].values[0] = 3;
  const ProgramMemory memory(**loaded, inputs);
  std::vector<std::vector<Array>> all;
  for (int step = 0; step < 3; ++step) {
    if (step == 2) {
      for (size_t i = 0; i < 3; ++i) write_array(inputs[i], memory.call().inputs[i]);
      (*loaded)->states_changed();
    }
    const auto done = (*loaded)->run(memory.call());
    REQUIRE_MESSAGE(done.has_value(), done.error().text());
    all.push_back(memory.results());
  }
  return all;
}

}  // namespace

TEST_CASE("weights that stay packed have the bits of those that do not, whoever changes them") {
  const Graph graph = updated_graph();
  const auto expected = three_steps(graph, false, 1);
  for (const char* product : gemm_kernels()) {
    use_gemm_kernel(product);
    for (const int threads : {1, 2, 3}) {
      const std::string multiplies = product;
      CAPTURE(multiplies);
      CAPTURE(threads);
      const auto results = three_steps(graph, true, threads);
      for (size_t step = 0; step < 3; ++step)
        for (size_t i = 0; i < expected[step].size(); ++i)
          CHECK(results[step][i].values == expected[step][i].values);
    }
  }
  use_gemm_kernel(gemm_kernels().back());
  CHECK(expected[0][3].values != expected[1][3].values);
  CHECK(expected[0][3].values == expected[2][3].values);
}

namespace {

// Threads that are held up here and there, each elsewhere, so that the others are far ahead.
class UnevenTeam final : public Team {
 public:
  UnevenTeam(int threads, uint64_t seed) : team_(threads), seed_(seed) {}

  int threads() const override { return team_.threads(); }
  void run(const std::function<void(int)>& work) override { team_.run(work); }
  void meet() override { team_.meet(); }
  void reach(int thread, uint32_t mark) override {
    if (random_bits(seed_, static_cast<uint64_t>(thread), mark) % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    team_.reach(thread, mark);
  }
  void wait_for(uint32_t mark) override { team_.wait_for(mark); }

 private:
  ThreadTeam team_;
  uint64_t seed_;
};

}  // namespace

TEST_CASE("a step has the same bits when threads are far apart") {
  const Graph graph = step_of_tiny_gpt(
      {.batch = 2, .time = 17, .heads = 2, .head = 24, .vocab = 130, .hidden = 70});
  const auto inputs = inputs_of(graph);
  const auto expected = execute(graph, inputs, 1);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    UnevenTeam team(seed % 2 == 0 ? 2 : 3, seed);
    const auto results = execute(graph, inputs, team);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(results[i].values == expected[i].values);
  }
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

  // Runs in a new epoch, which ends when the first thread comes to a mark, or not at all.
  Result<void> run(const ProgramMemory& memory, int abort_at) {
    page.begin(page.page.epoch + 1);
    const EpochWatch watch = page.watch();
    team.marks = 0;
    team.abort_at = abort_at;
    ProgramCall call = memory.call();
    call.epoch = &watch;
    return loaded->run(call);
  }
};

}  // namespace

TEST_CASE(
    "when its epoch ends a program stops after the next phase, and what was decided does not") {
  const Graph graph = decided_graph();
  Aborted aborted(graph);
  const auto inputs = inputs_of(graph);
  const ProgramMemory whole(*aborted.loaded, inputs);
  REQUIRE(aborted.run(whole, 0).has_value());
  const int marks = aborted.team.marks;
  int stopped = 0;
  for (int at = 1; at <= marks; ++at) {
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
    CHECK(aborted.team.marks <= at + 1);  // the epoch ended after the threads had looked
    CHECK(memory.results()[0].values == inputs[1].values);
    // Nothing of it is left: the same memory, in the next epoch.
    REQUIRE(aborted.run(memory, 0).has_value());
    CHECK(memory.results()[0].values == whole.results()[0].values);
  }
  CHECK(stopped > 0);
  CHECK(stopped < marks);  // after the decision it is rolled forward
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
  CHECK(aborted.team.marks == 0);
}

TEST_CASE("of several failures the first in the program is told, whoever is fast") {
  // Two operations that run beside each other, each refused by one thread's part of it.
  const Graph graph = graph_of(R"(graph g(%x: f32[t=64, n=8], %i: i32[m=64], %j: i32[m=64]) {
    %y = gather(%x, %i) {dim="t"}
    %z = gather(%x, %j) {dim="t"}
    return %y as "y", %z as "z"
  })");
  std::vector<Array> inputs = inputs_of(graph);
  inputs[1].values[60] = 98;
  inputs[2].values[3] = 99;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    UnevenTeam team(2, seed);
    TestDevice device(team);
    auto program = lower_to_program(optimize(graph));
    REQUIRE(program.has_value());
    REQUIRE(program->instructions[1].beside == 1);
    auto loaded = device.cpu.load(*std::move(program));
    REQUIRE(loaded.has_value());
    const ProgramMemory memory(**loaded, inputs);
    const auto done = (*loaded)->run(memory.call());
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().text().find("token 60 is 98") != std::string::npos);
  }
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
