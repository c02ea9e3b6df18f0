#include "train/worker_mesh.h"

#include <doctest/doctest.h>

using namespace tutti;

namespace {

WorkerMesh made(std::string_view mesh, std::string_view rules, uint32_t workers) {
  auto mesh_made = WorkerMesh::make(mesh, rules, workers);
  REQUIRE_MESSAGE(mesh_made.has_value(), mesh_made.error().text());
  return *std::move(mesh_made);
}

std::string refused(std::string_view mesh, std::string_view rules, uint32_t workers) {
  const auto mesh_made = WorkerMesh::make(mesh, rules, workers);
  REQUIRE_FALSE(mesh_made.has_value());
  return mesh_made.error().text();
}

using Ranks = std::vector<uint32_t>;

}  // namespace

TEST_CASE("without a word about it all workers share the data") {
  const WorkerMesh mesh = made("", "", 3);
  CHECK(mesh.data_workers() == 3);
  CHECK(mesh.data_worker(2) == 2);
  CHECK(mesh.state() == ShardedState::none);
  CHECK(mesh.model().ranks() == 1);
  CHECK(mesh.with_same_samples(1) == Ranks{1});
}

TEST_CASE("one axis is of samples, and the others divide the work on them") {
  const WorkerMesh mesh = made("tp=2,zero1=3,sp=2", "time=sp", 12);
  CHECK(mesh.data_workers() == 3);
  CHECK(mesh.state() == ShardedState::moments);
  CHECK(mesh.model().text() == "tp=2,sp=2");
  CHECK(rules_text(mesh.rules()) == "time=sp,heads=tp,hidden=tp");
  // Rank 9 is at tp=1, zero1=1, sp=1.
  CHECK(mesh.data_worker(9) == 1);
  CHECK(mesh.model_rank(9) == 3);
  CHECK(mesh.with_same_part(9) == Ranks{7, 9, 11});
  CHECK(mesh.with_same_samples(9) == Ranks{2, 3, 8, 9});
  CHECK(mesh.along(9, "tp") == Ranks{3, 9});
  CHECK(mesh.along(9, "sp") == Ranks{8, 9});
}

TEST_CASE("a mesh that is of other workers, or of axes that split nothing, is refused") {
  CHECK(refused("dp=2,tp=2", "", 3) ==
        "mesh dp=2,tp=2 has 4 ranks, and there are 3 workers; use --workers 4, or another mesh");
  CHECK(refused("dp=2,fsdp=2", "", 4).find("can along one axis so far: fsdp=4") !=
        std::string::npos);
  CHECK(refused("xp=2", "", 2).find("nothing is split along xp") != std::string::npos);
  CHECK(refused("tp=2", "vocab=xp", 2).find("has no axis `xp`") != std::string::npos);
  CHECK(made("dp=1,fsdp=2", "", 2).state() == ShardedState::all);
  CHECK(made("fsdp=1,dp=2", "", 2).state() == ShardedState::none);
}
