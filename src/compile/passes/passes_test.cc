#include "compile/passes/passes.h"

#include "compile/autodiff.h"
#include "compile/graph_fixture_test.h"
#include "compile/program/lower.h"
#include "compile/tiny_gpt_test.h"

using namespace tutti;

namespace {

// The pass makes `before` to `after`, and both compute the same.
template <class Pass>
void check_pass(const Pass& pass, std::string_view before, std::string_view after) {
  const Graph graph = graph_of(before);
  const Graph made = pass(graph);
  const auto checked = verify(made);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  CHECK(made.text() == after);
  const auto expected = run(graph, inputs_of(graph));
  const auto results = run(made, inputs_of(made));
  REQUIRE(results.size() == expected.size());
  for (size_t i = 0; i < results.size(); ++i) check_close(results[i], expected[i], 1e-6);
}

}  // namespace

TEST_CASE("expand writes what has no kernel in primitives, and leaves the rest") {
  check_pass(expand, R"(graph g(%x: f32[n=3]) {
    %s = softmax(%x) {dim="n"} @"a.py:1"
    %y, %r = rms_norm(%s, %x) {dim="n", epsilon=0.1} @"a.py:2"
    return %y as "y"
  })",
             R"(graph g(%x: f32[n=3]) {
  %0 = reduce_max(%x) {dims=["n"]} : f32[] @"a.py:1"
  %1 = broadcast(%0) : f32[n=3] @"a.py:1"
  %2 = sub(%x, %1) : f32[n=3] @"a.py:1"
  %3 = exp(%2) : f32[n=3] @"a.py:1"
  %4 = sum(%3) {dims=["n"]} : f32[] @"a.py:1"
  %5 = broadcast(%4) : f32[n=3] @"a.py:1"
  %6 = div(%3, %5) : f32[n=3] @"a.py:1"
  %7, %8 = rms_norm(%6, %x) {dim="n", epsilon=0.1} : f32[n=3], f32[] @"a.py:2"
  return %7 as "y"
}
)");
}

TEST_CASE("simplify leaves out what computes nothing new") {
  check_pass(simplify, R"(graph g(%x: f32[n=2, m=3]) {
    %one = constant() {value=1.0} : f32[n=2, m=3]
    %zero = constant() {value=0.0} : f32[n=2, m=3]
    %a = mul(%x, %one) @"a.py:1"
    %b = add(%zero, %a)
    %c = neg(%b)
    %d = neg(%c)
    %e = add(%d, %c)
    %f = transpose(%e) {order=["m", "n"]}
    %g = transpose(%f) {order=["n", "m"]}
    %h = reshape(%g) : f32[k=6]
    %i = reshape(%h) : f32[l=3, k=2]
    return %i as "y"
  })",
             R"(graph g(%x: f32[n=2, m=3]) {
  %0 = constant() {value=1.0} : f32[n=2, m=3]
  %1 = constant() {value=0.0} : f32[n=2, m=3]
  %2 = neg(%x) : f32[n=2, m=3]
  %3 = sub(%x, %x) : f32[n=2, m=3]
  %4 = transpose(%3) {order=["m", "n"]} : f32[m=3, n=2]
  %5 = reshape(%3) : f32[k=6]
  %6 = reshape(%3) : f32[l=3, k=2]
  return %6 as "y"
}
)");
}

TEST_CASE("simplify computes with constants") {
  check_pass(simplify, R"(graph g(%x: f32[n=2]) {
    %a = constant() {value=2.0} : f32[]
    %b = constant() {value=0.5} : f32[]
    %c = mul(%a, %b)
    %d = broadcast(%c) : f32[n=2]
    %e = div(%x, %d)
    %f = sum(%d) {dims=["n"]}
    return %e as "y", %f as "f"
  })",
             R"(graph g(%x: f32[n=2]) {
  %0 = constant() {value=2.0} : f32[]
  %1 = constant() {value=0.5} : f32[]
  %2 = constant() {value=1.0} : f32[]
  %3 = constant() {value=1.0} : f32[n=2]
  %4 = constant() {value=2.0} : f32[]
  return %x as "y", %4 as "f"
}
)");
}

TEST_CASE("merge_equal keeps the first of equals, in bodies too") {
  check_pass(merge_equal, R"(graph g(%x: f32[n=2]) {
    %a = exp(%x) @"a.py:1"
    %b = exp(%x) @"a.py:2"
    %c = add(%a, %b)
    %y = repeat(%c) {carried=1, count=2, reversed=false, sliced=0, stack="layer"}
    body(%x: f32[n=2]) {
      %a = tanh(%x)
      %b = tanh(%x)
      %c = mul(%a, %b)
      return %c as "x"
    }
    return %y as "y"
  })",
             R"(graph g(%x: f32[n=2]) {
  %0 = exp(%x) : f32[n=2] @"a.py:1"
  %1 = add(%0, %0) : f32[n=2]
  %2 = repeat(%1) {carried=1, count=2, reversed=false, sliced=0, stack="layer"} : f32[n=2]
  body(%x: f32[n=2]) {
    %0 = tanh(%x) : f32[n=2]
    %1 = mul(%0, %0) : f32[n=2]
    return %1 as "x"
  }
  return %2 as "y"
}
)");
}

TEST_CASE("remove_unused drops what no output needs, also of what rounds carry") {
  check_pass(remove_unused, R"(graph g(%x: f32[n=2], %w: f32[layer=2, n=2], %v: f32[n=2]) {
    %e = exp(%v)
    %z = tanh(%x)
    %y, %u, %s = repeat(%x, %e, %w, %z)
      {carried=2, count=2, reversed=false, sliced=1, stack="layer"}
    body(%x: f32[n=2], %u: f32[n=2], %w: f32[n=2], %z: f32[n=2]) {
      %a = mul(%x, %w)
      %b = mul(%u, %z)
      return %a as "x", %b as "u", %b as "s"
    }
    return %y as "y"
  })",
             R"(graph g(%x: f32[n=2], %w: f32[layer=2, n=2], %v: f32[n=2]) {
  %0 = repeat(%x, %w) {carried=1, count=2, reversed=false, sliced=1, stack="layer"} : f32[n=2]
  body(%x: f32[n=2], %w: f32[n=2]) {
    %0 = mul(%x, %w) : f32[n=2]
    return %0 as "x"
  }
  return %0 as "y"
}
)");
}

TEST_CASE("join_losses computes a loss where its gradient is") {
  const Graph graph = graph_of(R"(graph g(%x: f32[t=2, e=3], %w: f32[v=4, e=3], %i: i32[t=2]) {
    %l = linear_cross_entropy(%x, %w, %i) {over="e", vocab="v"} @"gpt.py:9"
    %s = sum(%l) {dims=["t"]}
    return %s as "loss"
  })");
  auto with = differentiate(graph, "loss", {"x", "w"});
  REQUIRE(with.has_value());
  const auto both = [](const Graph& one) { return remove_unused(join_losses(simplify(one))); };
  check_pass(both, with->text(),
             R"(graph g(%x: f32[t=2, e=3], %w: f32[v=4, e=3], %i: i32[t=2]) {
  %0 = constant() {value=1.0} : f32[t=2]
  %1, %2 = linear_cross_entropy_grad(%x, %w, %i, %0) {over="e", part="input", vocab="v"}
      : f32[t=2], f32[t=2, e=3] @"gpt.py:9"
  %3 = sum(%1) {dims=["t"]} : f32[]
  %4 = linear_cross_entropy_grad(%x, %w, %i, %0) {over="e", part="weights", vocab="v"}
      : f32[v=4, e=3] @"gpt.py:9"
  return %3 as "loss", %2 as "gradient/x", %4 as "gradient/w"
}
)");
}

TEST_CASE("join_gradients makes one operation of a gradient's two parts, in rounds too") {
  check_pass(join_gradients, R"(graph g(%x: f32[t=2, e=3], %w: f32[v=4, e=3], %i: i32[t=2],
      %d: f32[t=2]) {
    %dw = linear_cross_entropy_grad(%x, %w, %i, %d) {over="e", part="weights", vocab="v"}
    %l, %dx = linear_cross_entropy_grad(%x, %w, %i, %d) {over="e", part="input", vocab="v"}
    %y, %ds = repeat(%dx, %w, %x, %d) {carried=1, count=4, reversed=true, sliced=1, stack="v"}
    body(%dy: f32[t=2, e=3], %s: f32[e=3], %x: f32[t=2, e=3], %r: f32[t=2]) {
      %dx = rms_norm_grad(%dy, %x, %s, %r) {dim="e", part="input"}
      %other = rms_norm_grad(%x, %x, %s, %r) {dim="e", part="weights"}
      %ds = rms_norm_grad(%dy, %x, %s, %r) {dim="e", part="weights"}
      %both = add(%ds, %other)
      return %dx as "dy", %both as "ds"
    }
    return %l as "l", %dw as "dw", %y as "y", %ds as "ds"
  })",
             R"(graph g(%x: f32[t=2, e=3], %w: f32[v=4, e=3], %i: i32[t=2], %d: f32[t=2]) {
  %0, %1, %2 = linear_cross_entropy_grad(%x, %w, %i, %d) {over="e", vocab="v"}
      : f32[t=2], f32[t=2, e=3], f32[v=4, e=3]
  %3, %4 = repeat(%1, %w, %x, %d) {carried=1, count=4, reversed=true, sliced=1, stack="v"}
      : f32[t=2, e=3], f32[v=4, e=3]
  body(%dy: f32[t=2, e=3], %s: f32[e=3], %x: f32[t=2, e=3], %r: f32[t=2]) {
    %0, %1 = rms_norm_grad(%dy, %x, %s, %r) {dim="e"} : f32[t=2, e=3], f32[e=3]
    %2 = rms_norm_grad(%x, %x, %s, %r) {dim="e", part="weights"} : f32[e=3]
    %3 = add(%1, %2) : f32[e=3]
    return %0 as "dy", %3 as "ds"
  }
  return %0 as "l", %2 as "dw", %3 as "y", %4 as "ds"
}
)");
}

TEST_CASE("join_pads puts parts of one tensor side by side") {
  const auto both = [](const Graph& one) { return remove_unused(join_pads(one)); };
  check_pass(both, R"(graph g(%x: f32[n=1, m=2], %y: f32[n=2, m=2], %z: f32[n=1, m=2]) {
    %a = pad(%y) {dim="n", low=1, high=1}
    %b = pad(%x) {dim="n", low=0, high=3}
    %c = pad(%z) {dim="n", low=3, high=0}
    %d = add(%a, %c)
    %e = add(%b, %d)
    %f = add(%a, %a)
    return %e as "e", %f as "f"
  })",
             R"(graph g(%x: f32[n=1, m=2], %y: f32[n=2, m=2], %z: f32[n=1, m=2]) {
  %0 = pad(%y) {dim="n", high=1, low=1} : f32[n=4, m=2]
  %1 = concat(%x, %y, %z) {dim="n"} : f32[n=4, m=2]
  %2 = add(%0, %0) : f32[n=4, m=2]
  return %1 as "e", %2 as "f"
}
)");
}

TEST_CASE("fuse makes one loop of what is between heavy kernels") {
  const auto both = [](const Graph& one) { return remove_unused(fuse(one)); };
  check_pass(
      both,
      R"(graph g(%x: f32[m=2, k=3], %w: f32[k=3, n=4], %b: f32[n=4], %s: f32[n=4], %t: f32[n=4]) {
    %p = matmul(%x, %w) {over=["k"]} @"a.py:1"
    %c = broadcast(%b) : f32[m=2, n=4]
    %q = add(%p, %c) @"a.py:2"
    %r = tanh(%q) @"a.py:3"
    %y, %u, %v = layer_norm(%r, %s, %t) {dim="n", epsilon=0.01} @"a.py:4"
    %e = exp(%y) @"a.py:5"
    %o = sum(%e) {dims=["n"]} @"a.py:6"
    %h = broadcast(%o) : f32[m=2, n=4]
    %z = div(%e, %h) @"a.py:7"
    return %z as "z", %r as "r"
  })",
      R"(graph g(%x: f32[m=2, k=3], %w: f32[k=3, n=4], %b: f32[n=4], %s: f32[n=4], %t: f32[n=4]) {
  %0 = matmul(%x, %w) {over=["k"]} : f32[m=2, n=4] @"a.py:1"
  %1 = fused(%b, %0) : f32[m=2, n=4] @"a.py:3"
  body(%in0: f32[n=4], %in1: f32[m=2, n=4]) {
    %0 = broadcast(%in0) : f32[m=2, n=4]
    %1 = add(%in1, %0) : f32[m=2, n=4] @"a.py:2"
    %2 = tanh(%1) : f32[m=2, n=4] @"a.py:3"
    return %2 as "out0"
  }
  %2, %3, %4 = layer_norm(%1, %s, %t) {dim="n", epsilon=0.01}
      : f32[m=2, n=4], f32[m=2], f32[m=2] @"a.py:4"
  %5 = fused(%2) : f32[m=2, n=4] @"a.py:7"
  body(%in0: f32[m=2, n=4]) {
    %0 = exp(%in0) : f32[m=2, n=4] @"a.py:5"
    %1 = sum(%0) {dims=["n"]} : f32[m=2] @"a.py:6"
    %2 = broadcast(%1) : f32[m=2, n=4]
    %3 = div(%0, %2) : f32[m=2, n=4] @"a.py:7"
    return %3 as "out0"
  }
  return %5 as "z", %1 as "r"
}
)");
}

TEST_CASE("sink_sums adds to each part in its round") {
  check_pass(sink_sums, R"(graph g(%s: f32[layer=2, n=3], %x: f32[n=3], %w: f32[layer=2, n=3]) {
    %c, %p, %q = repeat(%x, %w) {carried=1, count=2, reversed=false, sliced=1, stack="layer"}
    body(%x: f32[n=3], %w: f32[n=3]) {
      %a = mul(%x, %w)
      %b = exp(%a)
      return %b as "x", %a as "p", %x as "q"
    }
    %y = add(%s, %p)
    %late = exp(%q)
    %z = add(%q, %late)
    return %y as "y", %z as "z", %c as "c"
  })",
             R"(graph g(%s: f32[layer=2, n=3], %x: f32[n=3], %w: f32[layer=2, n=3]) {
  %0, %1, %2 = repeat(%x, %w, %s) {carried=1, count=2, reversed=false, sliced=2, stack="layer"}
      : f32[n=3], f32[layer=2, n=3], f32[layer=2, n=3]
  body(%x: f32[n=3], %w: f32[n=3], %sum1: f32[n=3]) {
    %0 = mul(%x, %w) : f32[n=3]
    %1 = add(%sum1, %0) : f32[n=3]
    %2 = exp(%0) : f32[n=3]
    return %2 as "x", %1 as "p", %x as "q"
  }
  %3 = exp(%2) : f32[layer=2, n=3]
  %4 = add(%2, %3) : f32[layer=2, n=3]
  return %1 as "y", %4 as "z", %0 as "c"
}
)");
}

TEST_CASE("the passes leave alone what has been through them") {
  const Graph graph = tiny_gpt(2);
  Names names;
  for (const Input& input : graph.inputs)
    if (input.role == InputRole::state) names.push_back(input.name);
  const auto with = differentiate(graph, "loss", names);
  REQUIRE(with.has_value());
  const std::string once = optimize(*with).text();
  for (const Pass& pass : passes()) {
    CAPTURE(pass.name);
    // From its text, as somebody has it who looked at it on the way.
    const Graph again = optimize(graph_of(optimize(*with, pass.name).text()));
    CHECK(again.text() == once);
    const auto program = lower_to_program(again);
    CHECK_MESSAGE(program.has_value(), program.error().text());
  }
}

TEST_CASE("a sum or maximum over nothing is the same") {
  check_pass(simplify, R"(graph g(%x: f32[n=2]) {
    %a = reduce_max(%x) {dims=[]}
    %b = sum(%a) {dims=[]}
    %y = exp(%b)
    return %y as "y"
  })",
             R"(graph g(%x: f32[n=2]) {
  %0 = exp(%x) : f32[n=2]
  return %0 as "y"
}
)");
}
