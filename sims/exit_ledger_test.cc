#include "sims/exit_ledger.h"

#include <doctest/doctest.h>

#include <vector>

namespace tutti::sims {
namespace {

constexpr Life kLife{1, 2, 0x100000001};

struct Bench {
  std::vector<std::string> complaints;
  ExitLedger ledger{[this](std::string what) { complaints.push_back(std::move(what)); }};

  void live() {
    ledger.began(kLife, 7, 1);
    ledger.ended(kLife, {.code = 3}, 10);
  }
  void note(int code, int signal = 0) {
    cluster::Exit exit;
    exit.set_code(code);
    exit.set_signal(signal);
    ledger.noted(7, kLife.job, kLife.epoch, kLife.process, exit);
  }
  void hear(uint64_t coordinator, int code) {
    cluster::Row row;
    row.set_epoch(kLife.epoch);
    row.mutable_exit()->set_code(code);
    ledger.heard(kLife.job, row, RangeSet(kLife.process));
    ledger.answered(coordinator, kLife.job, row, RangeSet(kLife.process));
  }
  void check(uint32_t boot = 1, int64_t over_at_ns = 20) {
    ledger.check_noted([=](uint32_t) { return boot; }, [=](uint64_t) { return over_at_ns; });
  }
};

TEST_CASE("an end that is told once to each who must know is in order") {
  Bench bench;
  bench.live();
  bench.note(3);
  bench.hear(1, 3);
  bench.ledger.new_agent(7);
  bench.note(3);
  bench.hear(2, 3);
  bench.check();
  CHECK(bench.complaints.empty());
}

TEST_CASE("an end that nobody is told of is found") {
  Bench bench;
  bench.live();
  bench.check();
  REQUIRE(bench.complaints.size() == 1);
  CHECK(bench.complaints[0] ==
        "no agent of host 7 was told of the end of process 2 of job 1 in epoch 100000001");
}

TEST_CASE("what a crash took along, or was left behind by its job, need not be told") {
  Bench bench;
  bench.live();
  bench.check(2);
  bench.check(1, 5);
  CHECK(bench.complaints.empty());
}

TEST_CASE("an end that is told twice is found") {
  Bench bench;
  bench.live();
  bench.note(3);
  bench.note(3);
  bench.hear(1, 3);
  bench.hear(1, 3);
  REQUIRE(bench.complaints.size() == 2);
  CHECK(bench.complaints[0].find("was told twice to the agent of host 7") != std::string::npos);
  CHECK(bench.complaints[1].find("coordinator 1 heard of the end") != std::string::npos);
}

TEST_CASE("an end that is not what happened is found") {
  Bench bench;
  bench.live();
  bench.note(0);
  bench.hear(1, 4);
  REQUIRE(bench.complaints.size() == 2);
  CHECK(bench.complaints[0].find("ended with code 3, and with code 0 is told") !=
        std::string::npos);
}

TEST_CASE("an end of who lives, and a life after its end, are found") {
  Bench bench;
  bench.ledger.began(kLife, 7, 1);
  bench.hear(1, 0);
  REQUIRE(bench.complaints.size() == 1);
  CHECK(bench.complaints[0].find("is told, and it lives") != std::string::npos);
  Bench other;
  other.hear(1, 0);
  CHECK(other.complaints.empty());
  other.ledger.began(kLife, 7, 1);
  other.ledger.began(kLife, 7, 1);
  REQUIRE(other.complaints.size() == 3);
  CHECK(other.complaints[0].find("began after its end was told") != std::string::npos);
  CHECK(other.complaints[1].find("ran twice") != std::string::npos);
}

TEST_CASE("a job that succeeded must have heard that every process returned 0") {
  Bench bench;
  bench.live();
  bench.hear(1, 3);
  bench.ledger.check_succeeded(1, 2);  // it returned 3
  bench.ledger.check_succeeded(1, 3);  // it never ran
  REQUIRE(bench.complaints.size() == 2);
  CHECK(bench.complaints[0].find("nobody heard that process 2 returned 0") != std::string::npos);
  const Life well{1, 2, 0x100000002};
  bench.ledger.began(well, 7, 1);
  bench.ledger.ended(well, {.code = 0}, 30);
  bench.ledger.check_succeeded(1, 2);  // not heard yet
  CHECK(bench.complaints.size() == 3);
  cluster::Row row;
  row.set_epoch(well.epoch);
  bench.ledger.heard(1, row, RangeSet(2));
  bench.ledger.check_succeeded(1, 2);
  CHECK(bench.complaints.size() == 3);
}

TEST_CASE("a gang must have returned in one life of it") {
  Bench bench;
  const auto live = [&](uint32_t process, uint64_t epoch, bool returns) {
    const Life life{1, process, epoch};
    bench.ledger.began(life, 7, 1);
    bench.ledger.ended(life, {.code = returns ? 0 : 3, .killed = false}, 30);
    if (!returns) return;
    cluster::Row row;
    row.set_epoch(epoch);
    bench.ledger.heard(1, row, RangeSet(process));
  };
  live(0, 1, true);
  live(1, 1, false);
  live(0, 2, false);
  live(1, 2, true);
  bench.ledger.check_one_life(1, RangeSet(0, 1));
  REQUIRE(bench.complaints.size() == 1);
  CHECK(bench.complaints[0].find("the work of two lives") != std::string::npos);
  live(1, 3, true);
  live(0, 4, true);  // the same life: of a start that was repeated
  bench.ledger.check_one_life(1, RangeSet(0, 1));
  CHECK(bench.complaints.size() == 1);
}

}  // namespace
}  // namespace tutti::sims
