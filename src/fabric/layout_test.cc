#include "fabric/layout.h"

#include <doctest/doctest.h>

#include "base/seeds_test.h"
#include "fabric/layout_fixture_test.h"

namespace tutti {
namespace {

Mesh mesh_of(std::vector<MeshAxis> axes) {
  auto mesh = Mesh::make(std::move(axes));
  REQUIRE_MESSAGE(mesh.has_value(), mesh.error().text());
  return *mesh;
}

Layout layout_of(const Mesh& mesh, LayoutOptions options) {
  auto layout = Layout::make(mesh, std::move(options));
  REQUIRE_MESSAGE(layout.has_value(), layout.error().text());
  return *layout;
}

std::string refusal(const Mesh& mesh, LayoutOptions options) {
  const auto layout = Layout::make(mesh, std::move(options));
  REQUIRE(!layout.has_value());
  CHECK(layout.error().code() == Code::invalid);
  return layout.error().text();
}

TEST_CASE("a mesh has its ranks row-major") {
  const auto mesh = *Mesh::make({{"fsdp", 2}, {"tp", 3}}, {5, 4, 3, 12, 11, 10});
  CHECK(mesh.size() == 6);
  CHECK(mesh.place_of(3) == 2);
  CHECK(mesh.place_of(12) == 3);
  CHECK(!mesh.place_of(0));
  CHECK(mesh.stride(0) == 3);
  CHECK(mesh.text() == "fsdp=2 tp=3 of ranks 5, 4, 3, 12, 11, 10");
  CHECK(mesh_of({{"fsdp", 4}, {"tp", 2}}).text() == "fsdp=4 tp=2 of ranks 0-7");
  CHECK(mesh_of({}).text() == "of rank 0");
}

TEST_CASE("a mesh that cannot be is refused with words") {
  CHECK(Mesh::make({{"a", 2}, {"a", 2}}).error().text() ==
        "mesh a=2 a=2 has two axes 'a'; give each a name of its own");
  CHECK(Mesh::make({{"a", 2}}, {0, 1, 2}).error().text() ==
        "mesh a=2 is of 2 ranks, not of the 3 that were given");
  CHECK(Mesh::make({{"a", 2}}, {1, 1}).error().text() == "rank 1 is twice in mesh a=2");
  CHECK(!Mesh::make({{"a", 0}}).has_value());
  CHECK(!Mesh::make({{"", 2}}).has_value());
  CHECK(!Mesh::make({{"a", 1 << 15}, {"b", 1 << 15}}).has_value());
  CHECK(!Mesh::make({{"a", 1}}, {kMostMeshRanks}).has_value());
}

TEST_CASE("a rank holds one piece of every dimension") {
  const Mesh mesh = mesh_of({{"fsdp", 4}, {"tp", 2}});
  const Layout layout = layout_of(mesh, {.shape = {10, 6}, .shards = {{0, {"fsdp"}}, {1, {"tp"}}}});
  CHECK(layout.text() == "(10 by fsdp, 6 by tp) on fsdp=4 tp=2 of ranks 0-7");
  CHECK(layout.box(0).text() == "[0:2, 0:3]");
  CHECK(layout.box(3).text() == "[2:5, 3:6]");
  CHECK(layout.box(7).text() == "[7:10, 3:6]");
  CHECK(layout.replicas() == 1);
  const Layout joined = layout_of(mesh, {.shape = {10, 6}, .shards = {{0, {"tp", "fsdp"}}}});
  CHECK(joined.pieces(0) == 8);
  CHECK(joined.box(1).text() == "[5:6, 0:6]");  // the first of the second half
  CHECK(joined.text() == "(10 by tp+fsdp, 6) on fsdp=4 tp=2 of ranks 0-7");
}

TEST_CASE("pieces begin at multiples of the chunk, as evenly as can be") {
  const Mesh mesh = mesh_of({{"x", 3}});
  const Layout layout = layout_of(mesh, {.shape = {10'000}, .shards = {{0, {"x"}, 4096}}});
  CHECK(layout.box(0).text() == "[0:4096]");
  CHECK(layout.box(1).text() == "[4096:8192]");
  CHECK(layout.box(2).text() == "[8192:10000]");
  const Layout few = layout_of(mesh, {.shape = {5000}, .shards = {{0, {"x"}, 4096}}});
  CHECK(few.box(0).elements() == 0);
  CHECK(few.box(1).text() == "[0:4096]");
  const Layout given = layout_of(
      mesh, {.shape = {10}, .shards = {{.dimension = 0, .axes = {"x"}, .bounds = {0, 7, 7, 10}}}});
  CHECK(given.box(0).text() == "[0:7]");
  CHECK(given.box(1).elements() == 0);
  CHECK(given.text() == "(10 by x at 0 7 7 10) on x=3 of ranks 0-2");
}

TEST_CASE("partial axes number lanes, the others replicas") {
  const Mesh mesh = mesh_of({{"dp", 2}, {"x", 3}, {"cp", 2}});
  const Layout layout = layout_of(
      mesh, {.shape = {9}, .shards = {{0, {"x"}}}, .partial = {"dp"}, .op = ReduceOp::mean});
  CHECK(layout.lanes() == 2);
  CHECK(layout.replicas() == 2);
  const Layout::Holding last = layout.holding(11);
  CHECK(last.piece[0] == 2);
  CHECK(last.lane == 1);
  CHECK(last.replica == 1);
  CHECK(layout.text() == "(9 by x), mean over dp, on dp=2 x=3 cp=2 of ranks 0-11");
}

TEST_CASE("nonsense is refused with words that say what to do") {
  const Mesh mesh = mesh_of({{"fsdp", 4}, {"tp", 2}});
  CHECK(refusal(mesh, {.shape = {4}, .shards = {{0, {"fdsp"}}}}) ==
        "mesh fsdp=4 tp=2 has no axis 'fdsp'; did you mean 'fsdp'?");
  CHECK(refusal(mesh, {.shape = {4}, .shards = {{1, {"tp"}}}}) ==
        "there is no dimension 1 to shard in a tensor of shape (4)");
  CHECK(refusal(mesh, {.shape = {4, 4}, .shards = {{0, {"tp"}}, {1, {"tp"}}}}) ==
        "axis 'tp' shards dimension 0 already, so it cannot be one that shards dimension 1");
  CHECK(refusal(mesh, {.shape = {4}, .shards = {{0, {"tp"}}, {0, {"fsdp"}}}}) ==
        "dimension 0 is sharded twice; name all its axes at once");
  CHECK(refusal(mesh, {.shape = {4}, .shards = {{0, {"tp"}}}, .partial = {"tp"}}) ==
        "axis 'tp' shards dimension 0 already, so it cannot be one that is partial");
  CHECK(refusal(mesh, {.shape = {4}, .shards = {{0, {"tp"}, 1, {0, 5, 4}}}}) ==
        "bounds of dimension 0 are 3 numbers that ascend from 0 to 4, not (0, 5, 4)");
  CHECK(refusal(mesh, {.shape = {4}, .shards = {{0, {"tp"}, 0}}}).find("multiples of 0") !=
        std::string::npos);
  CHECK(refusal(mesh, {.shape = std::vector<uint64_t>(9, 1)}).find("at most 8") !=
        std::string::npos);
  CHECK(refusal(mesh, {.shape = {1UL << 40, 1UL << 40}}).find("past all memory") !=
        std::string::npos);
}

TEST_CASE("layouts are equal when all they say is") {
  const Mesh mesh = mesh_of({{"fsdp", 4}, {"tp", 2}});
  const Layout one = layout_of(mesh, {.shape = {8, 8}, .shards = {{0, {"tp"}}}});
  CHECK(one == layout_of(mesh_of({{"fsdp", 4}, {"tp", 2}}),
                         {.shape = {8, 8}, .shards = {{0, {"tp"}}}, .op = ReduceOp::max}));
  CHECK(!(one == layout_of(mesh, {.shape = {8, 8}, .shards = {{1, {"tp"}}}})));
  CHECK(!(one == layout_of(mesh, {.shape = {8, 8}, .shards = {{0, {"tp"}}}, .partial = {"fsdp"}})));
  CHECK(!(one == layout_of(mesh, {.shape = {8, 8}, .shards = {{0, {"tp"}, 2}}})));
}

TEST_CASE("boxes of a lane and replica cover the tensor once, whatever the layout") {
  for (uint64_t seed = 0; seed < seeds(500); ++seed) {
    CAPTURE(seed);
    RandomLayouts random(seed);
    const auto shape = random.shape();
    const Layout layout = random.layout(32, shape);
    CAPTURE(layout.text());
    uint64_t elements = 1;
    for (const uint64_t size : shape) elements *= size;
    std::vector<int> held(elements * layout.lanes() * layout.replicas());
    for (uint32_t place = 0; place < layout.mesh().size(); ++place) {
      const Layout::Holding holding = layout.holding(place);
      uint32_t sum = layout.place_of_lane(holding.lane) + layout.place_of_replica(holding.replica);
      for (uint32_t d = 0; d < shape.size(); ++d) sum += layout.place_of_piece(d, holding.piece[d]);
      CHECK(sum == place);
      const uint64_t which = holding.lane * layout.replicas() + holding.replica;
      for_each_element(layout, layout.box(place),
                       [&](uint64_t global, uint64_t) { ++held[which * elements + global]; });
    }
    CHECK(std::ranges::count(held, 1) == std::ssize(held));
  }
}

}  // namespace
}  // namespace tutti
