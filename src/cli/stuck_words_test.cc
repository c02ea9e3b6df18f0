#include "cli/stuck_words.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "cluster/sparse.h"
#include "fabric/call.h"

namespace tutti::cli {
namespace {

class StillParking final : public Parking {
 public:
  Instant now() const override { return instant_from_ns(1'000'000'000); }
  void yield() override {}
  void park(const std::atomic<uint32_t>&, uint32_t, Instant) override {}
  void wake_all(std::atomic<uint32_t>&) override {}
  Result<void> populate(MutableBytes) override { return {}; }
  void discard(MutableBytes) override {}
};

// The record of a rank that has made so many calls of the world, and waits in the last or not.
std::string a_record(uint32_t rank, uint32_t size, uint32_t calls, bool waits) {
  const StillParking parking;
  const auto record = std::make_unique<FlightRecord>();
  FlightRecorder flight(parking, *record);
  flight.begin_epoch(1, {.rank = rank, .world_size = size});
  std::vector<uint32_t> all(size);
  for (uint32_t i = 0; i < size; ++i) all[i] = i;
  flight.make_group(0, 77, "world", all);
  flight.made_group(0);
  for (uint32_t call = 1; call <= calls; ++call) {
    const uint32_t site = flight.site(fmt::format("train.py:{}", call));
    const Call asked{.kind = CallKind::all_reduce, .elements = 100 * call};
    const uint32_t number = flight.begin(0, asked, call, site);
    flight.enter(0, number);
    flight.note(0, number, FlightPhase::arrived);
    if (call != calls || !waits) flight.note(0, number, FlightPhase::done);
  }
  flight.wait_in(waits ? 1 : kWaitsForNothing);
  return pack_sparse(reinterpret_cast<const std::byte*>(record.get()), sizeof(FlightRecord));
}

cluster::ProcessLook a_look(uint32_t process, const std::string& letters) {
  cluster::ProcessLook look;
  look.mutable_info()->set_process(process);
  look.mutable_info()->set_index(process);
  look.mutable_info()->set_pid(1000 + process);
  look.mutable_info()->set_state("running");
  look.set_letters(letters);
  look.set_at_ns(5'000'000'000);
  look.set_span_ns(250'000'000);
  return look;
}

cluster::JobInfo a_job(uint32_t count) {
  cluster::JobInfo info;
  info.set_job(17);
  info.set_name("train");
  info.set_state(cluster::RUNNING);
  cluster::RoleInfo& role = *info.add_roles();
  role.set_name("worker");
  role.set_kind(job::Role::GANG);
  role.set_count(count);
  info.add_members()->set_name("one");
  return info;
}

TEST_CASE("many ranks that do the same are one row, and the answer is short") {
  constexpr uint32_t kRanks = 512;
  std::vector<cluster::ProcessLook> looks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const bool late = rank >= 100 && rank < 110;
    looks.push_back(a_look(rank, late ? "R" : "S"));
    looks.back().set_record(a_record(rank, kRanks, late ? 1 : 2, !late));
    if (late) looks.back().set_cpu_ns(250'000'000);
  }
  CHECK(stuck_text(understand(a_job(kRanks), std::move(looks), false)) ==
        "job 17 train (running), 512 processes\n"
        "group world, call 2, all_reduce of 200 f32, sum at train.py:2\n"
        "  arrived  ranks 0-99,110-511, waiting for 4.00 s\n"
        "  missing  ranks 100-109: computing; last call there: 1, all_reduce at train.py:1\n"
        "next: ask again in a while: a wait this short may only be a slow step\n");
}

TEST_CASE("a role among several is named where a command needs it") {
  cluster::JobInfo info = a_job(2);
  cluster::RoleInfo& data = *info.add_roles();
  data.set_name("data");
  data.set_kind(job::Role::SERVICE);
  data.set_count(1);
  std::vector<cluster::ProcessLook> looks{a_look(0, "S"), a_look(1, "ST"), a_look(2, "S")};
  looks[0].set_record(a_record(0, 2, 1, true));
  looks[1].set_record(a_record(1, 2, 0, false));
  looks[2].mutable_info()->set_index(0);
  looks[2].mutable_info()->set_step(3);
  const std::string text = stuck_text(understand(std::move(info), std::move(looks), false));
  CHECK(text ==
        "job 17 train (running), 3 processes\n"
        "group world, call 1, all_reduce of 100 f32, sum at train.py:1\n"
        "  arrived  worker 0, waiting for 4.00 s\n"
        "  missing  worker 1: stopped by a signal; no call there before (pid 1001 on one)\n"
        "the others\n"
        "  data 0: sleeping, without using the processor, at step 3 (pid 1002 on one)\n"
        "next: tutti signal 17 CONT --rank worker/1\n");
}

TEST_CASE("records that cannot be read, and ranks that nobody tells of, are told as such") {
  std::vector<cluster::ProcessLook> looks{a_look(0, "S"), a_look(1, "S"), a_look(2, "D")};
  looks[0].set_record(a_record(0, 4, 1, true));
  looks[1].set_record("nonsense");
  looks[2].set_no_record("its keeper is of an earlier version, and tells of no heap");
  SeenJob job = understand(a_job(4), std::move(looks), false);
  job.silent.emplace_back("two", "its agent does not answer");
  const std::string text = stuck_text(job);
  CHECK(
      text.find("missing  rank 1: sleeping, without using the processor; not in the fabric yet") !=
      std::string::npos);
  CHECK(text.find("missing  rank 2: blocked in the kernel (state D), as by a disk that does not "
                  "answer; no record: its keeper is of an earlier version") != std::string::npos);
  CHECK(text.find("missing  rank 3: nothing is known of it\n") != std::string::npos);
  CHECK(text.find("\ntwo: its agent does not answer\n") != std::string::npos);
  CHECK(stuck_json(job)["roles"][0]["waits"][0]["missing"] == Json({1, 2, 3}));
}

TEST_CASE("the last calls of a rank are listed, with what came before them") {
  std::vector<cluster::ProcessLook> looks{a_look(0, "S"), a_look(1, "S")};
  looks[0].set_record(a_record(0, 2, 30, true));
  looks[1].set_record(a_record(1, 2, 29, false));
  const SeenJob job = understand(a_job(2), std::move(looks), false);
  const std::string text = history_text(job, RangeSet(0));
  CHECK(text.starts_with("rank 0 (pid 1000 on one): waits in group world, call 30, "));
  CHECK(text.find("\n  after 10 calls\n") != std::string::npos);
  CHECK(text.find("\n  world  11    all_reduce of 1100 f32, sum  train.py:11  done ") !=
        std::string::npos);
  CHECK(std::ranges::count(text, '\n') == 23);
}

TEST_CASE("of a job that succeeded nothing is kept, and nothing was stuck") {
  cluster::JobInfo info = a_job(2);
  info.set_state(cluster::SUCCEEDED);
  const std::string text = stuck_text(understand(std::move(info), {}, true));
  CHECK(text.find("it succeeded: nothing was stuck") != std::string::npos);
}

}  // namespace
}  // namespace tutti::cli
