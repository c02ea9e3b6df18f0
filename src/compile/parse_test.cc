#include "compile/parse.h"

#include "compile/graph_fixture_test.h"

using namespace tutti;

namespace {

constexpr std::string_view kText =
    R"(graph step(%x: f32[batch=2, embed=3], %w: f32[embed=3, hidden=4] state) {
  %0 = matmul(%x, %w) {over=["embed"]} : f32[batch=2, hidden=4] @"gpt.py:41"
  %1 = constant() {value=0.5} : f32[batch=2, hidden=4]
  %2 = mul(%0, %1) : f32[batch=2, hidden=4]
  %3, %4 = repeat(%2) {carried=1, count=3, reversed=false, sliced=0, stack="layer"}
      : f32[batch=2, hidden=4], f32[layer=3, batch=2]
  body(%carried0: f32[batch=2, hidden=4]) {
    %0 = tanh(%carried0) : f32[batch=2, hidden=4]
    %1 = sum(%0) {dims=["hidden"]} : f32[batch=2]
    return %0 as "carried0", %1 as "stacked0"
  }
  return %3 as "y", %4 as "sums"
}
)";

std::string error_of(std::string_view text) {
  const auto graph = parse_graph(text, "t.ir");
  REQUIRE(!graph.has_value());
  return graph.error().text();
}

}  // namespace

TEST_CASE("a graph's text reads back as the same text") { CHECK(graph_of(kText).text() == kText); }

TEST_CASE("types that follow may be left out, and comments are skipped") {
  const Graph graph = graph_of(R"(
    # twice a number
    graph g(%x: f32[n=2]) { %y = add(%x, %x) return %y as "y" })");
  CHECK(graph.text() == R"(graph g(%x: f32[n=2]) {
  %0 = add(%x, %x) : f32[n=2]
  return %0 as "y"
}
)");
}

TEST_CASE("mistakes in a text are told with their place") {
  CHECK(error_of("graph g(%x: f32[n=2]) { %y = ad(%x, %x) return }") ==
        "t.ir:1:32: there is no operation ad; did you mean add?");
  CHECK(error_of("graph g(%x: f32[n=2]) {\n  %y = add(%x, %z)") ==
        "t.ir:2:18: %z is not made before it is used");
  CHECK(error_of("graph g(%x: f32[n=2], %y: f32[n=3]) { %z = add(%x, %y) return }") ==
        "t.ir:1:56: add: f32[n=2] and f32[n=3] differ");
  CHECK(error_of("graph g(%x: f32[n=2, n=3]) { return }") ==
        "t.ir:1:26: f32[n=2, n=3]: two dimensions are named n; rename one");
  CHECK(error_of("graph g(%x: f32[n=2]) { %y = add(%x, %x) : f32[n=3] return }") ==
        "t.ir:1:53: %y is f32[n=2], not f32[n=3]");
}

TEST_CASE("no text makes the parser fail otherwise than with an error") {
  for (size_t cut = 0; cut < kText.size(); ++cut) {
    const bool whole = cut + 1 >= kText.size();  // but for the last line's end
    CHECK(parse_graph(kText.substr(0, cut)).has_value() == whole);
    std::string changed(kText);
    changed[cut] = '%';
    static_cast<void>(parse_graph(changed));
  }
}

TEST_CASE("the verifier finds what passes could break") {
  const Graph good = graph_of(kText);
  Graph graph = good;
  std::swap(graph.ops[0], graph.ops[2]);
  CHECK(verify(graph).error().text() ==
        "graph step: operation 0, mul: value 2 is used before it is made");
  graph = good;
  graph.types[graph.ops[0].results[0]].dims[0].size = 3;
  CHECK(verify(graph).error().text() ==
        "graph step: operation 0, matmul of gpt.py:41: result 0 is f32[batch=2, hidden=4], not "
        "f32[batch=3, hidden=4]");
  graph = good;
  graph.outputs[1].name = "y";
  CHECK(verify(graph).error().text() == "graph step: two outputs are named y");
}
