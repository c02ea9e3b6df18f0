#include "compile/shard/mesh.h"

#include <doctest/doctest.h>

using namespace tutti;

namespace {

ShardMesh mesh_of(std::string_view text) {
  auto mesh = ShardMesh::parse(text);
  REQUIRE_MESSAGE(mesh.has_value(), mesh.error().text());
  return *std::move(mesh);
}

std::string error_of(std::string_view text) {
  const auto mesh = ShardMesh::parse(text);
  REQUIRE(!mesh.has_value());
  return mesh.error().text();
}

}  // namespace

TEST_CASE("a mesh's text reads back, and its last axis varies fastest") {
  const ShardMesh mesh = mesh_of("dp=2,pp=3,tp=4");
  CHECK(mesh.text() == "dp=2,pp=3,tp=4");
  CHECK(mesh.ranks() == 24);
  CHECK(mesh.coordinates(0) == std::vector<int64_t>{0, 0, 0});
  CHECK(mesh.coordinates(1) == std::vector<int64_t>{0, 0, 1});
  CHECK(mesh.coordinates(4) == std::vector<int64_t>{0, 1, 0});
  CHECK(mesh.coordinates(23) == std::vector<int64_t>{1, 2, 3});
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
    CHECK(mesh.rank_at(mesh.coordinates(rank)) == rank);
  CHECK(mesh.coordinate(23, std::vector<std::string>{"tp", "dp"}) == 7);
}

TEST_CASE("a group is the ranks that differ along one axis") {
  const ShardMesh mesh = mesh_of("dp=2,pp=3,tp=4");
  CHECK(mesh.group(5, "tp") == std::vector<int64_t>{4, 5, 6, 7});
  CHECK(mesh.group(5, "pp") == std::vector<int64_t>{1, 5, 9});
  CHECK(mesh.group(5, "dp") == std::vector<int64_t>{5, 17});
}

TEST_CASE("no axes are the mesh of one rank") {
  const ShardMesh mesh = mesh_of("");
  CHECK(mesh.ranks() == 1);
  CHECK(mesh.group(0, "dp") == std::vector<int64_t>{0});
}

TEST_CASE("what is no mesh says why") {
  CHECK(error_of("dp") == "mesh dp: `dp` is no axis with its size; write it as dp=2,tp=2");
  CHECK(error_of("dp=2,") == "mesh dp=2,: `` is no axis with its size; write it as dp=2,tp=2");
  CHECK(error_of("dp=two") == "mesh dp=two: `two` is no size of an axis; write it as dp=2,tp=2");
  CHECK(error_of("dp=2,dp=3") == "mesh dp=2,dp=3: the mesh has two axes dp; name each once");
  CHECK(error_of("dp=0") == "mesh dp=0: axis dp has size 0; use 1 or more");
  CHECK(error_of("d-p=2") == "mesh d-p=2: `d-p` is no name of an axis; use letters, digits and _");
  CHECK(error_of("a=1048576,b=2") ==
        "mesh a=1048576,b=2: the mesh has more than 1048576 ranks; make b smaller");
}

TEST_CASE("a mesh is of so many workers and no others") {
  const ShardMesh mesh = mesh_of("dp=2,tp=2");
  CHECK(mesh.check_workers(4).has_value());
  CHECK(mesh.check_workers(3).error().text() ==
        "mesh dp=2,tp=2 has 4 ranks, and there are 3 workers; use --workers 4, or another mesh");
}
