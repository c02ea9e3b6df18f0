#include "cluster/job_looks.h"

#include <doctest/doctest.h>

#include <cstring>

#include "cluster/sparse.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

constexpr uint64_t kHeapBytes = 1 << 20;

struct Desk {
  Simulator sim{{.seed = 3, .hosts = 1}};
  World& world = sim.host(0);
  Handle heap = *world.memory().create_arena("heap", kHeapBytes);
  std::unique_ptr<Mapping> bytes = *world.memory().map(heap, 0, kHeapBytes, true);
  JobLooks looks{world, "/agent/jobs/7"};
  tutti_control_page page{};

  ~Desk() { sim.host(0).scope().kill(); }
  void give_heap() { looks.set_heap(std::move(heap)); }
  void run(Task<void> task) {
    sim.host(0).scope().spawn(std::move(task));
    sim.run_for(1s);
  }
};

cluster::ProcessLook a_look(uint32_t process, uint64_t epoch, bool told_to_end,
                            std::string record = "r") {
  cluster::ProcessLook look;
  look.mutable_info()->set_process(process);
  look.mutable_info()->set_epoch(epoch);
  look.set_told_to_end(told_to_end);
  look.set_record(std::move(record));
  return look;
}

TEST_CASE("a record is copied from where the page says, whole or its beginning") {
  Desk desk;
  std::memcpy(desk.bytes->bytes().data() + 5000, "hello", 5);
  tutti_control_set_record(&desk.page, 4992, 3000, 100);
  CHECK(desk.looks.record_of(desk.page, true).error().code() == Code::unavailable);
  desk.give_heap();
  for (const bool whole : {true, false}) {
    const auto packed = desk.looks.record_of(desk.page, whole);
    REQUIRE(packed.has_value());
    const auto record = unpack_sparse(as_bytes(*packed), kMostRecordBytes);
    REQUIRE(record.has_value());
    CHECK(record->size() == (whole ? 3000 : 100));
    CHECK(record->substr(8, 5) == "hello");
  }
}

TEST_CASE("a page without a record has an empty one, and one that lies is refused") {
  Desk desk;
  desk.give_heap();
  CHECK(desk.looks.record_of(desk.page, true).value().empty());
  const auto lies = [&](uint64_t offset, uint32_t bytes, uint32_t brief) {
    tutti_control_set_record(&desk.page, offset, bytes, brief);
    return desk.looks.record_of(desk.page, true).error().code();
  };
  CHECK(lies(kHeapBytes, 64, 64) == Code::corrupt);
  CHECK(lies(kHeapBytes - 8, 64, 64) == Code::corrupt);
  CHECK(lies(~uint64_t{7}, 64, 64) == Code::corrupt);
  CHECK(lies(0, kMostRecordBytes + 1, 64) == Code::corrupt);
  CHECK(lies(0, 64, 65) == Code::corrupt);
  CHECK(lies(3, 64, 64) == Code::corrupt);
}

Task<void> write_all(JobLooks& looks) { co_await looks.write(); }

TEST_CASE("looks outlive the agent, and those before the end are worth more") {
  Desk desk;
  desk.looks.keep(a_look(0, 5, true, "waited"));
  desk.looks.keep(a_look(1, 5, true, "computed"));
  desk.looks.keep(a_look(2, 5, false));
  desk.run(write_all(desk.looks));
  CHECK_FALSE(desk.looks.unwritten());

  JobLooks next(desk.world, "/agent/jobs/7");
  cluster::ProcessLook ended = a_look(0, 5, false, "");
  ended.mutable_exit()->set_signal(15);
  next.keep(ended);
  next.keep(a_look(1, 6, false, "another life"));
  desk.run(write_all(next));
  CHECK(next.kept().size() == 3);
  CHECK(next.kept().at(0).record() == "waited");
  CHECK(next.kept().at(0).exit().signal() == 15);
  CHECK(next.kept().at(1).record() == "another life");
  CHECK(next.find(1, 5) == nullptr);
  CHECK(next.find(1, 6) != nullptr);
}

TEST_CASE("records are kept as far as there is room, and the rest without") {
  Desk desk;
  const std::string large(kMostKeptBytes / 2, 'x');
  for (uint32_t process = 0; process < 4; ++process)
    desk.looks.keep(a_look(process, 1, true, large));
  CHECK_FALSE(desk.looks.kept().at(1).record().empty());
  CHECK(desk.looks.kept().at(2).record().empty());
  CHECK(desk.looks.kept().at(3).no_record() == "there was no room to keep it");
  desk.looks.keep(a_look(0, 2, true, ""));
  desk.looks.keep(a_look(3, 2, true, large));
  CHECK_FALSE(desk.looks.kept().at(3).record().empty());
}

}  // namespace
}  // namespace tutti
