#include "compile/shard/interpret_ranks.h"

#include "compile/graph_fixture_test.h"

using namespace tutti;

namespace {

using Numbers = std::vector<double>;

constexpr std::string_view kEach = R"(graph g(%x: f32[n=4, m=2]) {
  %0 = all_reduce(%x) {axis="tp", ranks=2} : f32[n=4, m=2]
  %1 = all_reduce(%x) {axis="dp", op="max", ranks=2} : f32[n=4, m=2]
  %2 = all_gather(%x) {axis="tp", dim="m", ranks=2} : f32[n=4, m=4]
  %3 = reduce_scatter(%x) {axis="tp", dim="n", ranks=2} : f32[n=2, m=2]
  %4 = all_to_all(%x) {axis="tp", from="m", ranks=2, to="n"} : f32[n=2, m=4]
  %5 = own_slice(%x) {axis="tp", dim="n", ranks=2} : f32[n=2, m=2]
  return %0 as "sum", %1 as "max", %2 as "gathered", %3 as "scattered", %4 as "turned", %5 as "own"
}
)";

// Of rank r, element i is 10 r + i.
std::vector<std::vector<Array>> counted(const Graph& graph, int64_t ranks) {
  std::vector<std::vector<Array>> inputs;
  for (int64_t r = 0; r < ranks; ++r) {
    Array array{graph.type(graph.inputs[0].value), {}};
    for (int64_t i = 0; i < array.type.elements(); ++i)
      array.values.push_back(static_cast<double>(10 * r + i));
    inputs.push_back({std::move(array)});
  }
  return inputs;
}

}  // namespace

TEST_CASE("operations between ranks read back and say what they are told wrongly") {
  CHECK(graph_of(kEach).text() == kEach);
  const auto error_of = [](std::string_view op) {
    const auto graph =
        parse_graph(fmt::format("graph g(%x: f32[n=3]) {{ %y = {} return %y as \"y\" }}", op));
    REQUIRE(!graph.has_value());
    const std::string text = graph.error().text();
    return text.substr(text.find(": ") + 2);
  };
  CHECK(error_of("own_slice(%x) {axis=\"tp\", dim=\"n\", ranks=2}") ==
        "own_slice: n=3 of f32[n=3] does not divide by 2 ranks");
  CHECK(error_of("all_gather(%x) {axis=\"tp\", dim=\"k\", ranks=2}") ==
        "all_gather: f32[n=3] has no dimension k");
  CHECK(error_of("all_reduce(%x) {axis=\"tp\"}") ==
        "all_reduce: attribute ranks is missing or of the wrong kind");
  CHECK(error_of("all_reduce(%x) {axis=\"tp\", op=\"min\", ranks=2}") ==
        "all_reduce: attribute op is not \"max\"");
}

TEST_CASE("ranks meet those that differ from them along one axis") {
  const Graph graph = graph_of(kEach);
  const auto mesh = ShardMesh::parse("dp=2,tp=2");
  const auto results = interpret_ranks(graph, *mesh, counted(graph, 4));
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  const auto& third = (*results)[3];  // meets rank 2 along tp, rank 1 along dp
  CHECK(third[0].values == Numbers{50, 52, 54, 56, 58, 60, 62, 64});
  CHECK((*results)[1][1].values == Numbers{30, 31, 32, 33, 34, 35, 36, 37});
  CHECK(third[2].values == Numbers{20, 21, 30, 31, 22, 23, 32, 33, 24, 25, 34, 35, 26, 27, 36, 37});
  CHECK(third[3].values == Numbers{58, 60, 62, 64});
  CHECK(third[4].values == Numbers{24, 25, 34, 35, 26, 27, 36, 37});
  CHECK(third[5].values == Numbers{34, 35, 36, 37});
}

TEST_CASE("ranks meet in the rounds of a repeat") {
  const Graph graph = graph_of(R"(graph g(%x: f32[n=2]) {
    %y, %s = repeat(%x) {carried=1, count=3, reversed=false, sliced=0, stack="layer"}
    body(%c: f32[n=2]) {
      %r = all_reduce(%c) {axis="tp", ranks=2}
      return %r as "carried0", %c as "stacked0"
    }
    return %y as "y", %s as "s"
  })");
  const auto results = interpret_ranks(graph, *ShardMesh::parse("tp=2"), counted(graph, 2));
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  CHECK((*results)[1][0].values == Numbers{40, 48});
  CHECK((*results)[0][1].values == Numbers{0, 1, 10, 12, 20, 24});
}

TEST_CASE("ranks that do not meet are told apart") {
  const Graph one = graph_of(R"(graph g(%x: f32[n=2]) {
    %y = all_reduce(%x) {axis="tp", ranks=2} return %y as "y" })");
  const Graph other = graph_of(R"(graph g(%x: f32[n=2]) { return %x as "y" })");
  const std::vector<const Graph*> graphs{&one, &other};
  const auto results = interpret_ranks(graphs, *ShardMesh::parse("tp=2"), counted(one, 2));
  CHECK(results.error().text() ==
        "rank 1 comes to its end, rank 0 to all_reduce {axis=\"tp\", ranks=2}");
  const auto alone = interpret(one, counted(one, 1)[0]);
  CHECK(alone.error().text() ==
        "all_reduce: needs the other ranks; run all with interpret_ranks()");
}
