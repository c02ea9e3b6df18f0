#include "compile/interpret.h"

#include <limits>

#include "compile/graph_fixture_test.h"

using namespace tutti;

namespace {

// The first output of a graph of one operation on the given values.
std::vector<double> result_of(const std::string& inputs, const std::string& op,
                              std::vector<std::vector<double>> values) {
  const Graph graph = graph_of("graph g(" + inputs + ") {\n" + op + "\n return %y as \"y\"\n}");
  std::vector<Array> arrays;
  for (size_t i = 0; i < values.size(); ++i)
    arrays.push_back({graph.type(graph.inputs[i].value), std::move(values[i])});
  return run(graph, std::move(arrays))[0].values;
}

using Numbers = std::vector<double>;

}  // namespace

TEST_CASE("changes of shape move elements to where their names say") {
  const std::string x = "%x: f32[a=2, b=3]";
  const Numbers six{1, 2, 3, 4, 5, 6};
  CHECK(result_of(x, "%y = transpose(%x) {order=[\"b\", \"a\"]}", {six}) ==
        Numbers{1, 4, 2, 5, 3, 6});
  CHECK(result_of(x, "%y = slice(%x) {dim=\"b\", start=1, size=2}", {six}) == Numbers{2, 3, 5, 6});
  CHECK(result_of(x, "%y = pad(%x) {dim=\"a\", low=1, high=0}", {six}) ==
        Numbers{0, 0, 0, 1, 2, 3, 4, 5, 6});
  CHECK(result_of("%x: f32[b=2]", "%y = broadcast(%x) : f32[a=2, b=2, c=2]", {{1, 2}}) ==
        Numbers{1, 1, 2, 2, 1, 1, 2, 2});
  CHECK(result_of("%x: f32[a=1, b=2], %z: f32[a=2, b=2]", "%y = concat(%x, %z) {dim=\"a\"}",
                  {{1, 2}, {3, 4, 5, 6}}) == six);
}

TEST_CASE("reductions go over the named dimensions") {
  const std::string x = "%x: f32[a=2, b=3]";
  const Numbers values{1, 5, 3, 4, 2, 6};
  CHECK(result_of(x, "%y = sum(%x) {dims=[\"a\"]}", {values}) == Numbers{5, 7, 9});
  CHECK(result_of(x, "%y = sum(%x) {dims=[\"b\", \"a\"]}", {values}) == Numbers{21});
  CHECK(result_of(x, "%y = reduce_max(%x) {dims=[\"b\"]}", {values}) == Numbers{5, 6});
  CHECK(result_of(x, "%y = argmax(%x) {dim=\"b\"}", {values}) == Numbers{1, 2});
  CHECK(result_of(x, "%y = cumulative_sum(%x) {dim=\"b\"}", {values}) ==
        Numbers{1, 6, 9, 4, 6, 12});
  CHECK(result_of(x, "%y = cumulative_sum(%x) {dim=\"a\"}", {values}) == Numbers{1, 5, 3, 5, 7, 9});
}

TEST_CASE("indices outside of their table are told with the user's line") {
  const std::string both = "%x: f32[rows=2, c=2], %i: i32[n=3]";
  CHECK(result_of(both, "%y = gather(%x, %i) {dim=\"rows\"}", {{1, 2, 3, 4}, {1, 0, 1}}) ==
        Numbers{3, 4, 1, 2, 3, 4});
  const Graph graph =
      graph_of("graph g(" + both +
               ") { %y = gather(%x, %i) {dim=\"rows\"} @\"m.py:3\" return %y as \"y\" }");
  const auto result = interpret(graph, {{graph.type(0), {1, 2, 3, 4}}, {graph.type(1), {0, 2, 0}}});
  REQUIRE(!result.has_value());
  CHECK(result.error().text() == "gather of m.py:3: index 2 is outside of rows=2");
}

TEST_CASE("products sum over the shared names asked for and batch the others") {
  CHECK(result_of("%a: f32[m=2, k=2], %b: f32[k=2, n=2]", "%y = matmul(%a, %b) {over=[\"k\"]}",
                  {{1, 2, 3, 4}, {5, 6, 7, 8}}) == Numbers{19, 22, 43, 50});
  CHECK(result_of("%a: f32[h=2, k=2], %b: f32[k=2, h=2]", "%y = matmul(%a, %b) {over=[\"k\"]}",
                  {{1, 2, 3, 4}, {5, 6, 7, 8}}) == Numbers{19, 50});
}

TEST_CASE("a causal query sees keys up to its own place, counted from the end") {
  const std::string qkv = "%q: f32[t=2, d=1], %k: f32[u=3, d=1], %v: f32[u=3, d=1]";
  const auto y = result_of(
      qkv,
      "%y, %l = attention(%q, %k, %v) {causal=true, scale=1.0, query=\"t\", key=\"u\", head=\"d\"}",
      {{0, 0}, {0, 0, 0}, {3, 5, 10}});
  CHECK(y == Numbers{4, 6});
}

TEST_CASE("rows go into a cache from a position on, and those past its end nowhere") {
  const std::string operands = "%c: f32[b=2, t=3], %r: f32[b=2, t=2], %p: i64[b=2]";
  const std::string update = "%y = update(%c, %r, %p) {dim=\"t\"}";
  const Numbers cache{1, 2, 3, 4, 5, 6};
  const Numbers rows{7, 8, 9, 10};
  CHECK(result_of(operands, update, {cache, rows, {0, 1}}) == Numbers{7, 8, 3, 4, 9, 10});
  CHECK(result_of(operands, update, {cache, rows, {2, 3}}) == Numbers{1, 2, 7, 4, 5, 6});
  const std::string one = "%c: f32[b=2, t=3], %r: f32[b=2, t=2], %p: i64[]";
  CHECK(result_of(one, update, {cache, rows, {1}}) == Numbers{1, 7, 8, 4, 9, 10});
  const Graph graph = graph_of("graph g(" + one + ") { " + update + " return %y as \"y\" }");
  for (const double outside : {-1.0, 4.0}) {
    const auto result = interpret(
        graph, {{graph.type(0), cache}, {graph.type(1), rows}, {graph.type(2), {outside}}});
    REQUIRE(!result.has_value());
    CHECK(result.error().text() == fmt::format("update: position {} is outside of t=3", outside));
  }
}

TEST_CASE("with a position, a query sees what is in the cache up to itself") {
  const auto y = result_of(
      "%q: f32[b=2, t=2, d=1], %k: f32[b=2, u=4, d=1], %v: f32[b=2, u=4, d=1], %p: i64[b=2]",
      "%y, %l = attention(%q, %k, %v, %p) {causal=true, scale=1.0, query=\"t\", key=\"u\", "
      "head=\"d\"}",
      {{0, 0, 0, 0}, Numbers(8), {2, 4, 60, 70, 1, 3, 5, 7}, {0, 3}});
  CHECK(y == Numbers{2, 3, 4, 4});
}

TEST_CASE("what cannot be put into a cache is told") {
  const auto error = [](const std::string& rows, const std::string& position) {
    return parse_graph("graph g(%c: f32[b=2, t=3], %r: " + rows + ", %p: " + position +
                       ") { %y = update(%c, %r, %p) {dim=\"t\"} return %y as \"y\" }")
        .error()
        .text();
  };
  CHECK(error("f32[b=3, t=1]", "i64[]")
            .ends_with("update: f32[b=2, t=3] and f32[b=3, t=1] differ in more than t"));
  CHECK(error("f32[b=2, t=4]", "i64[]").ends_with("update: 4 rows do not fit into f32[b=2, t=3]"));
  CHECK(error("f32[b=2, t=1]", "i32[]").ends_with("update: position i32[] is not of i64"));
  CHECK(error("f32[b=2, t=1]", "i64[t=3]")
            .ends_with("position i64[t=3] has a dimension t=3 that f32[b=2, t=3] has not besides "
                       "t"));
}

TEST_CASE("targets below zero are not counted") {
  const auto y = result_of("%x: f32[t=2, e=1], %w: f32[v=2, e=1], %i: i32[t=2]",
                           "%y = linear_cross_entropy(%x, %w, %i) {over=\"e\", vocab=\"v\"}",
                           {{0, 0}, {1, 1}, {1, -1}});
  CHECK(y[0] == doctest::Approx(std::log(2.0)));
  CHECK(y[1] == 0);
}

TEST_CASE("targets that are not words are refused, forward and back") {
  const std::string operands = "%x: f32[t=2, e=1], %w: f32[v=2, e=1], %i: i32[t=2]";
  const auto error = [](const std::string& inputs, const std::string& results,
                        const std::string& op, const std::vector<Numbers>& values) {
    const Graph graph = graph_of("graph g(" + inputs + ") { " + results + " = " + op +
                                 " {over=\"e\", vocab=\"v\"} @\"m.py:3\" return %y as \"y\" }");
    std::vector<Array> arrays;
    for (size_t i = 0; i < values.size(); ++i)
      arrays.push_back({graph.type(graph.inputs[i].value), values[i]});
    const auto result = interpret(graph, std::move(arrays));
    return result.has_value() ? "" : result.error().text();
  };
  const std::string told = " of m.py:3: target 1 is 2, which is not below the vocabulary of 2";
  CHECK(error(operands, "%y", "linear_cross_entropy(%x, %w, %i)", {{0, 0}, {1, 1}, {1, 2}}) ==
        "linear_cross_entropy" + told);
  CHECK(error(operands + ", %d: f32[t=2]", "%y, %dx, %dw",
              "linear_cross_entropy_grad(%x, %w, %i, %d)",
              {{0, 0}, {1, 1}, {1, 2}, {1, 1}}) == "linear_cross_entropy_grad" + told);
}

TEST_CASE("random bits depend on seed, stream, step and place alone") {
  const std::string step = "%s: i64[]";
  const auto bits = [&](const std::string& attributes, double at) {
    return result_of(step, "%y = random(%s) " + attributes + " : u32[n=6]", {{at}});
  };
  const auto first = bits("{seed=1, stream=\"w\"}", 3);
  CHECK(first[5] == random_bits(stream_key(1, "w"), 3, 5));
  CHECK(first != bits("{seed=2, stream=\"w\"}", 3));
  CHECK(first != bits("{seed=1, stream=\"v\"}", 3));
  CHECK(first != bits("{seed=1, stream=\"w\"}", 4));
}

TEST_CASE("values are rounded to their kind of number") {
  CHECK(rounded(1 + 0x1p-9, DType::bf16) == 1);
  CHECK(rounded(1 + 3 * 0x1p-9, DType::bf16) == 1 + 0x1p-7);
  CHECK(rounded(65519, DType::f16) == 65504);
  CHECK(rounded(65520, DType::f16) == std::numeric_limits<double>::infinity());
  CHECK(rounded(0x1p-24, DType::f16) == 0x1p-24);
  CHECK(rounded(0x1p-26, DType::f16) == 0);
  CHECK(rounded(-1, DType::u32) == 4294967295.0);
  CHECK(rounded(0.1, DType::f32) == static_cast<double>(0.1F));
}
