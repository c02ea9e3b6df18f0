#include "compile/program/lower.h"

#include <fmt/format.h>

#include <algorithm>

#include "compile/autodiff.h"
#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/program/interpret_program.h"
#include "compile/random_graph_test.h"
#include "compile/tiny_gpt_test.h"

using namespace tutti;

namespace {

// The program computes what the graph says.
Program check_program(const Graph& graph, double tolerance = 1e-4) {
  const Graph optimized = optimize(graph);
  const auto checked = verify(optimized);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  auto program = lower_to_program(optimized);
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  CAPTURE(program->text());
  const auto inputs = inputs_of(graph);
  const auto expected = run(graph, inputs);
  const auto results = interpret_program(*program, inputs);
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  REQUIRE(results->size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(graph.outputs[i].name);
    check_close((*results)[i], expected[i], tolerance);
  }
  return *std::move(program);
}

Graph with_gradients(const Graph& graph, const Names& names) {
  auto with = differentiate(graph, "loss", names);
  REQUIRE_MESSAGE(with.has_value(), with.error().text());
  return *std::move(with);
}

}  // namespace

TEST_CASE("programs compute what graphs say, operation by operation") {
  const auto check = [](const std::string& ops, const std::string& outputs) {
    std::string returned;
    for (const char name : outputs)
      returned += fmt::format("{}%{} as \"{}\"", returned.empty() ? "" : ", ", name, name);
    check_program(graph_of("graph g(%x: f32[m=3, n=4]) { " + ops + " return " + returned + " }"));
  };
  check(R"(%a = exp(%x) %b = sum(%a) {dims=["n"]} %c = sum(%a) {dims=["m"]})", "abc");
  check(R"(%a = sum(%x) {dims=["m", "n"]})", "a");
  check(R"(%a = transpose(%x) {order=["n", "m"]}
           %b = slice(%a) {dim="n", start=1, size=2}
           %c = reshape(%b) : f32[k=6])",
        "abc");
  check(R"(%a = softmax(%x) {dim="n"} %b = softmax(%x) {dim="m"})", "ab");
  check(R"(%a = pad(%x) {dim="n", low=1, high=2} %b = concat(%x, %x) {dim="m"})", "ab");
  check(R"(%a = tanh(%x) %b = sin(%x) %c = concat(%a, %b) {dim="n"} %d = mul(%c, %c))", "d");
  check(R"(%a = argmax(%x) {dim="n"} %b = cumulative_sum(%x) {dim="m"})", "ab");
  check(R"(%a = constant() {value=2.5} : f32[m=3] %i = iota() {dim="n"} : i32[m=3, n=4])", "axi");
  check("%a = squared_norm(%x, %x)", "a");
  check(R"(%i = constant() {value=2.0} : i64[m=3]
           %r = slice(%x) {dim="n", start=1, size=3}
           %a = update(%x, %r, %i) {dim="n"})",
        "a");
  check(R"(%a = reduce_max(%x) {dims=["m"]} %b = reduce_max(%x) {dims=["n", "m"]})", "ab");
}

TEST_CASE("a program refuses targets that are not words as its graph does") {
  const Graph graph = graph_of(R"(graph g(%x: f32[t=2, e=1], %w: f32[v=2, e=1], %i: i32[t=2]) {
    %l = linear_cross_entropy(%x, %w, %i) {over="e", vocab="v"}
    return %l as "loss"
  })");
  const std::vector<Array> inputs{
      {graph.type(0), {0, 0}}, {graph.type(1), {1, 1}}, {graph.type(2), {1, 2}}};
  const auto program = lower_to_program(graph);
  REQUIRE(program.has_value());
  const auto result = interpret_program(*program, inputs);
  REQUIRE(!result.has_value());
  CHECK(interpret(graph, inputs).error().text().ends_with(result.error().text()));
}

TEST_CASE("sums and maxima over dimensions that do not lie together are programs") {
  for (const std::string dims :
       {R"("a", "c")", R"("b", "d")", R"("a", "d")", R"("a", "b", "d")", R"("c", "a")", R"("d")",
        R"("one", "d")", R"("one")", R"("a", "one")", ""})
    for (const std::string op : {"sum", "reduce_max"})
      for (const std::string type : {"f32", "i32", "bf16"}) {
        CAPTURE(op);
        CAPTURE(dims);
        check_program(graph_of(fmt::format(
            R"(graph g(%x: {}[a=3, b=4, one=1, c=5, d=2]) {{
              %y = {}(%x) {{dims=[{}]}} return %y as "y" }})",
            type, op, dims)));
      }
}

TEST_CASE("small models at random are what their graphs say, as programs") {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    check_program(random_models(seed, 1), 2e-4);
  }
}

TEST_CASE("programs multiply matrices however they lie") {
  for (const std::string text : {
           R"(%a: f32[m=2, k=3], %b: f32[k=3, n=4]) { %y = matmul(%a, %b) {over=["k"]})",
           R"(%a: f32[k=3, m=2], %b: f32[n=4, k=3]) { %y = matmul(%a, %b) {over=["k"]})",
           R"(%a: f32[p=2, k=3, q=2], %b: f32[n=4, k=3]) { %y = matmul(%a, %b) {over=["k"]})",
           R"(%a: f32[h=2, m=2, k=3], %b: f32[k=3, h=2, n=2]) { %y = matmul(%a, %b) {over=["k"]})",
           R"(%a: f32[m=2, j=2, k=3], %b: f32[k=3, n=2, j=2]) {
             %y = matmul(%a, %b) {over=["j", "k"]})",
       })
    check_program(graph_of("graph g(" + text + " return %y as \"y\" }"));
}

TEST_CASE("what follows a product element by element is its edge") {
  const auto kernels = [](const std::string& text) {
    std::string names;
    for (const Instruction& each : check_program(graph_of("graph g(" + text)).instructions)
      names += std::string(kernel_name(each.kernel)) + (each.edge.empty() ? " " : "+ ");
    return names;
  };
  const std::string inputs =
      R"(%a: f32[p=2, m=2, k=3], %w: f32[k=3, n=4], %b: f32[n=4], %r: f32[p=2, m=2, n=4]) {
         %y = matmul(%a, %w) {over=["k"]} )";
  // Bias, activation, residual; the product itself is not kept, or is.
  const std::string more = R"(%c = broadcast(%b) : f32[p=2, m=2, n=4]
      %d = add(%y, %c) %e = erf(%d) %f = add(%e, %r) )";
  CHECK(kernels(inputs + more + R"(return %f as "f" })") == "gemm+ ");
  CHECK(kernels(inputs + more + R"(return %f as "f", %d as "d", %y as "y" })") == "gemm+ ");
  // Sums over a row are not within a block, and another order is not of this block.
  CHECK(kernels(inputs + R"(%s = sum(%y) {dims=["n"]} return %s as "s" })") == "gemm loops ");
  CHECK(kernels(inputs + R"(%t = transpose(%y) {order=["n", "m", "p"]} %e = exp(%t)
                            return %e as "e" })") == "gemm loops ");
  // What it reads must be there before the product.
  CHECK(kernels(inputs + R"(%l, %u, %v = layer_norm(%y, %b, %b) {dim="n", epsilon=1e-5}
                            %f = add(%y, %l) return %f as "f" })") == "gemm layer_norm loops ");
  // A state that is read after the product keeps its old value until then.
  CHECK(kernels(R"(%a: f32[m=2, k=3], %w: f32[k=3, n=4], %r: f32[m=2, n=4] state) {
      %y = matmul(%a, %w) {over=["k"]} %s = sum(%r) {dims=["m"]} %n = add(%y, %r)
      return %n as "r", %s as "s" })")
            .starts_with("gemm "));
}

TEST_CASE("sums over rounds stay in one place, and products are added to them") {
  const Program program = check_program(graph_of(R"(
    graph g(%sum: f32[layer=2, m=3, n=4], %a: f32[atom=3, m=3, k=5], %w: f32[layer=2, k=5, n=4]) {
      %y = repeat(%sum, %a, %w) {carried=1, count=3, reversed=false, sliced=1, stack="atom"}
      body(%sum: f32[layer=2, m=3, n=4], %a: f32[m=3, k=5], %w: f32[layer=2, k=5, n=4]) {
        %p = repeat(%w, %a) {carried=0, count=2, reversed=true, sliced=1, stack="layer"}
        body(%w: f32[k=5, n=4], %a: f32[m=3, k=5]) {
          %y = matmul(%a, %w) {over=["k"]}
          return %y as "stacked"
        }
        %next = add(%sum, %p)
        return %next as "sum"
      }
      return %y as "y"
    })"));
  CHECK(program.instructions.size() == 6);  // a product with its edge for each atom and layer
  CHECK(program.arena_bytes == 64);         // a product
}

TEST_CASE("a next value is not written over what is still read") {
  for (const std::string next : {
           R"(%t = transpose(%w) {order=["n", "m"]} %r = reshape(%t) : f32[m=3, n=3]
              %y = add(%w, %r))",
           R"(%a = slice(%w) {dim="m", start=1, size=2} %b = slice(%w) {dim="m", start=0, size=1}
              %y = concat(%a, %b) {dim="m"})",
           R"(%s = sum(%w) {dims=["m"]} %b = broadcast(%s) : f32[m=3, n=3] %y = sub(%w, %b))",
           R"(%o = constant() {value=1.0} : f32[n=3, k=3] %p = matmul(%w, %o) {over=["n"]}
              %y = reshape(%p) : f32[m=3, n=3])",
           // Read as its own transpose, and its first row for each row.
           R"(%r = reshape(%w) : f32[n=3, m=3] %t = transpose(%r) {order=["m", "n"]}
              %y = add(%w, %t))",
           R"(%a = slice(%w) {dim="m", start=0, size=1} %b = reshape(%a) : f32[n=3]
              %c = broadcast(%b) : f32[m=3, n=3] %y = add(%w, %c))",
           R"(%e = exp(%w) %s = reduce_max(%e) {dims=["n"]} %b = broadcast(%s) : f32[m=3, n=3]
              %y = sub(%w, %b))",
       })
    check_program(
        graph_of("graph g(%w: f32[m=3, n=3] state) { " + next + R"( return %y as "w" })"));
}

TEST_CASE("what rounds carry and keep is where it is kept") {
  const Program program = check_program(graph_of(R"(graph g(%x: f32[n=4], %w: f32[layer=3, n=4]) {
    %y, %kept = repeat(%x, %w) {carried=1, count=3, reversed=false, sliced=1, stack="layer"}
    body(%c: f32[n=4], %p: f32[n=4]) {
      %d = mul(%c, %p)
      return %d as "carried", %c as "kept"
    }
    return %y as "y", %kept as "kept"
  })"));
  // A copy to begin with, and three rounds.
  CHECK(program.instructions.size() == 4);
}

TEST_CASE("a state's next value takes its place, also when the old one is read later") {
  const Program program = check_program(graph_of(R"(graph g(%w: f32[n=2] state, %x: f32[n=2]) {
    %a = add(%w, %x)
    %b = sum(%a) {dims=["n"]}
    %c = sum(%w) {dims=["n"]}
    return %a as "w", %b as "b", %c as "c"
  })"));
  CHECK(program.inputs[0].role == InputRole::state);
}

TEST_CASE("a state that is read where its next value is made is not written over too early") {
  // Of layers: the old part is read after the new one is made.
  check_program(graph_of(R"(graph g(%x: f32[n=2], %w: f32[l=3, k=4, n=2] state, %p: i64[]) {
    %y, %next = repeat(%x, %w, %p) {carried=1, sliced=1, count=3, stack="l", reversed=false}
    body(%x: f32[n=2], %w: f32[k=4, n=2], %p: i64[]) {
      %rows = reshape(%x) : f32[k=1, n=2]
      %next = update(%w, %rows, %p) {dim="k"}
      %old = sum(%w) {dims=["k"]}
      %y = add(%old, %x)
      return %y as "x", %next as "next"
    }
    return %next as "w", %y as "y"
  })"));
  // By rows of itself.
  check_program(graph_of(R"(graph g(%w: f32[n=6] state) {
    %p = constant() {value=1.0} : i64[]
    %r = slice(%w) {dim="n", start=0, size=4}
    %next = update(%w, %r, %p) {dim="n"}
    return %next as "w"
  })"));
  // By a product of itself.
  check_program(graph_of(R"(graph g(%w: f32[m=3, n=3] state) {
    %t = reshape(%w) : f32[n=3, o=3]
    %p = matmul(%w, %t) {over=["n"]}
    %next = reshape(%p) : f32[m=3, n=3]
    return %next as "w"
  })"));
}

TEST_CASE("caches of layers stay where they are, and only rows are written") {
  const Program program = check_program(graph_of(R"(graph g(%x: f32[t=2, d=3], %p: i64[],
      %keys: f32[l=3, u=5, d=3] state, %values: f32[l=3, u=5, d=3] state) {
    %y, %k, %v = repeat(%x, %keys, %values, %p)
        {carried=1, sliced=2, count=3, stack="l", reversed=false}
    body(%x: f32[t=2, d=3], %keys: f32[u=5, d=3], %values: f32[u=5, d=3], %p: i64[]) {
      %rows = reshape(%x) : f32[u=2, d=3]
      %k = update(%keys, %rows, %p) {dim="u"}
      %v = update(%values, %rows, %p) {dim="u"}
      %y, %l = attention(%x, %k, %v, %p)
          {causal=true, scale=0.5, query="t", key="u", head="d"}
      return %y as "x", %k as "k", %v as "v"
    }
    return %k as "keys", %v as "values", %y as "y"
  })"));
  size_t updates = 0;
  for (const Instruction& instruction : program.instructions) {
    const auto touches_cache = [&](const TensorRef& ref) {
      const ProgramBuffer& buffer = program.buffers[ref.buffer];
      return (buffer.place == BufferPlace::input && buffer.index >= 2) ||
             (buffer.place == BufferPlace::output && buffer.index < 2);
    };
    if (instruction.kernel == Kernel::update) {
      ++updates;
      const TensorRef& from = instruction.operands[0];
      const TensorRef& to = instruction.results[0];
      CHECK(from.offset == to.offset);
      CHECK(program.inputs[program.buffers[from.buffer].index].name ==
            program.outputs[program.buffers[to.buffer].index].name);
    } else if (std::ranges::any_of(instruction.operands, touches_cache) ||
               std::ranges::any_of(instruction.results, touches_cache)) {
      CHECK(instruction.kernel == Kernel::attention);
    }
  }
  CHECK(updates == 6);
}

TEST_CASE("a small GPT's loss and gradients are the same as a program") {
  const Graph graph = tiny_gpt(2);
  check_program(graph);
  Names names;
  for (const Input& input : graph.inputs)
    if (input.role == InputRole::state) names.push_back(input.name);
  const Graph with = with_gradients(graph, names);
  const Program program = check_program(with);
  CHECK(program.arena_bytes < 20'000);
  // As many kernels however many layers there are.
  const auto deeper = lower_to_program(optimize(with_gradients(tiny_gpt(7), names)));
  REQUIRE(deeper.has_value());
  CHECK(deeper->loops.size() == program.loops.size());
}

TEST_CASE("random bits of two streams, and of a step that is computed, stay apart") {
  check_program(graph_of(R"(graph g(%s: i64[]) {
    %a = random(%s) {seed=1, stream="a"} : u32[n=5]
    %b = random(%s) {seed=1, stream="b"} : u32[n=5]
    %two = constant() {value=2.0} : i64[]
    %t = mul(%s, %two)
    %c = random(%t) {seed=1, stream="a"} : u32[n=5]
    return %a as "a", %b as "b", %c as "c"
  })"));
}

TEST_CASE("a collective is begun when its operands are there, and waited for when it is wanted") {
  const Graph graph = graph_of(R"(graph g(%x: f32[n=8], %w: f32[n=8]) {
    %a = exp(%x)
    %b = tanh(%w)
    %s = lane_all_reduce(%a) {axis="dp", lanes=2, first=0, count=1}
    %c = sum(%b) {dims=["n"]}
    %t = lane_all_reduce(%b) {axis="dp", lanes=2, first=0, count=1}
    %d = mul(%s, %t)
    return %d as "d", %c as "c"
  })");
  const auto program = lower_to_program(graph);
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  std::string order;
  for (const Instruction& instruction : program->instructions) {
    if (instruction.kernel == Kernel::collective_start)
      order += fmt::format("start {} ", instruction.attributes.get<int64_t>("slot", -1));
    else if (instruction.kernel == Kernel::collective_wait)
      order += fmt::format("wait {} ", instruction.attributes.get<int64_t>("slot", -1));
    else
      order += instruction.kernel == Kernel::loops ? "loop " : "sum ";
  }
  CAPTURE(program->text());
  // %b is still read by the sum, so what is made of it has a place of its own; %a's is taken.
  CHECK(order == "loop start 0 loop start 1 sum sum wait 0 wait 1 loop ");
  const auto alone = interpret_program(*program, inputs_of(graph));
  REQUIRE_FALSE(alone.has_value());
  CHECK(alone.error().text().find("takes other workers") != std::string::npos);
  const auto starts =
      std::ranges::find(program->instructions, Kernel::collective_start, &Instruction::kernel);
  CHECK(starts->operands[0].offset == starts->results[0].offset);
}

TEST_CASE("what is copied for a collective, or of what it made, moves with it") {
  const Graph graph = graph_of(R"(graph g(%x: f32[b=2, t=4], %w: f32[n=8]) {
    %a = exp(%x)
    %c = sum(%w) {dims=["n"]}
    %m = all_to_all(%a) {axis="tp", from="b", ranks=2, to="t"}
    %s = sum(%w) {dims=["n"]}
    %p = all_gather(%a) {axis="tp", dim="t", ranks=2}
    %d = neg(%m)
    %e = neg(%p)
    return %d as "d", %c as "c", %s as "s", %e as "e"
  })");
  const auto program = lower_to_program(graph);
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  std::string order;
  for (const Instruction& its : program->instructions) {
    const bool starts = its.kernel == Kernel::collective_start;
    const bool meets = starts || its.kernel == Kernel::collective_wait;
    if (meets)
      order +=
          fmt::format("{} {} ", starts ? "start" : "wait", its.attributes.get<std::string>("call"));
    else
      order += its.kernel == Kernel::loops ? "loop " : "sum ";
  }
  CAPTURE(program->text());
  // The exchange is of parts of t, which is not the first, and what it makes lies as it should;
  // what is gathered along t is copied apart where it is wanted.
  CHECK(order ==
        "loop loop start all_to_all start all_gather sum sum sum sum wait all_to_all loop "
        "wait all_gather loop loop ");
}
