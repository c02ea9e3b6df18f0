#include "compile/program/fit.h"

#include "compile/autodiff.h"
#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/passes/rematerialise.h"
#include "compile/program/interpret_program.h"
#include "compile/program/lower.h"
#include "compile/tiny_gpt_test.h"

using namespace tutti;

namespace {

Graph gpt_with_gradients(int64_t layers) {
  const Graph graph = tiny_gpt(layers);
  Names names;
  for (const Input& input : graph.inputs)
    if (input.role == InputRole::state) names.push_back(input.name);
  auto with = differentiate(graph, "loss", names);
  REQUIRE_MESSAGE(with.has_value(), with.error().text());
  return *std::move(with);
}

}  // namespace

TEST_CASE("what a gradient needs of a round is computed again") {
  const Graph graph = graph_of(R"(graph g(%x: f32[n=3], %w: f32[layer=2, n=3]) {
    %y, %p, %q = repeat(%x, %w) {carried=1, count=2, reversed=false, sliced=1, stack="layer"}
    body(%x: f32[n=3], %w: f32[n=3]) {
      %a = mul(%x, %w)
      %b = exp(%a) @"m.py:7"
      return %b as "x", %b as "kept0", %x as "kept1"
    }
    %d, %e = repeat(%y, %p, %q) {carried=1, count=2, reversed=true, sliced=2, stack="layer"}
    body(%d: f32[n=3], %p: f32[n=3], %q: f32[n=3]) {
      %a = mul(%d, %p)
      %b = mul(%a, %q)
      return %a as "d", %b as "e"
    }
    return %d as "d", %e as "e"
  })");
  const auto choices = find_recomputations(graph);
  REQUIRE(choices.size() == 1);  // what is carried cannot be computed from itself
  CHECK(choices[0].text == "exp of m.py:7: f32[layer=2, n=3]");
  CHECK(choices[0].bytes == 24);
  CHECK(choices[0].work == 12);
  const Graph made = rematerialise(graph, choices[0]);
  CHECK(made.text() == R"(graph g(%x: f32[n=3], %w: f32[layer=2, n=3]) {
  %0, %1 = repeat(%x, %w) {carried=1, count=2, reversed=false, sliced=1, stack="layer"}
      : f32[n=3], f32[layer=2, n=3]
  body(%x: f32[n=3], %w: f32[n=3]) {
    %0 = mul(%x, %w) : f32[n=3]
    %1 = exp(%0) : f32[n=3] @"m.py:7"
    return %1 as "x", %x as "kept1"
  }
  %2, %3 = repeat(%0, %1, %w) {carried=1, count=2, reversed=true, sliced=2, stack="layer"}
      : f32[n=3], f32[layer=2, n=3]
  body(%d: f32[n=3], %q: f32[n=3], %again0: f32[n=3]) {
    %0 = mul(%q, %again0) : f32[n=3] @"m.py:7"
    %1 = exp(%0) : f32[n=3] @"m.py:7"
    %2 = mul(%d, %1) : f32[n=3]
    %3 = mul(%2, %q) : f32[n=3]
    return %2 as "d", %3 as "e"
  }
  return %2 as "d", %3 as "e"
}
)");
  const auto expected = run(graph, inputs_of(graph));
  const auto results = run(made, inputs_of(made));
  for (size_t i = 0; i < results.size(); ++i) CHECK(results[i].values == expected[i].values);
}

TEST_CASE("a small GPT fits into less, down to one value a layer, and computes the same") {
  const Graph graph = gpt_with_gradients(5);
  const auto inputs = inputs_of(graph);
  const auto whole = fit_program(graph, 1 << 30);
  REQUIRE(whole.has_value());
  CHECK(whole->recomputed.empty());
  const auto expected = interpret_program(whole->program, inputs);
  REQUIRE(expected.has_value());
  int64_t before = whole->program.arena_bytes;
  for (const double share : {0.9, 0.75, 0.0}) {
    const auto most = static_cast<int64_t>(share * static_cast<double>(whole->program.arena_bytes));
    const auto fitted = fit_program(graph, most);
    REQUIRE_MESSAGE(fitted.has_value(), fitted.error().text());
    CAPTURE(fitted->recomputed);
    CHECK(fitted->program.arena_bytes < before);
    before = fitted->program.arena_bytes;
    if (share > 0) CHECK(fitted->program.arena_bytes <= most);
    const auto results = interpret_program(fitted->program, inputs);
    REQUIRE(results.has_value());
    for (size_t i = 0; i < expected->size(); ++i) check_close((*results)[i], (*expected)[i], 1e-6);
  }
  CHECK(static_cast<double>(before) < 0.6 * static_cast<double>(whole->program.arena_bytes));
}
