#include "fabric/stuck.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

constexpr uint64_t kWorld = 11;
constexpr uint64_t kA = 21;
constexpr uint64_t kB = 31;

SeenCall a_call(uint32_t number, FlightPhase phase, CallKind kind = CallKind::all_reduce) {
  return {.number = number,
          .call = number,
          .kind = kind,
          .elements = 10,
          .phase = phase,
          .began_ns = 1'000,
          .site = "x.py:1"};
}

SeenGroup a_group(uint64_t key, const char* name, const RangeSet& ranks, const SeenCall& now) {
  SeenGroup group{.key = key, .name = name, .ranks = ranks, .begun = now.call, .now = now};
  group.size = static_cast<uint32_t>(ranks.size());
  return group;
}

RankSeen a_rank(uint32_t rank, uint32_t size, std::vector<SeenGroup> groups,
                std::optional<uint32_t> waits_in = {}) {
  RankSeen seen{.rank = rank, .letter = 'S', .busy = 0, .at_ns = 5'000};
  seen.flight = SeenFlight{.epoch = 1, .rank = rank, .world_size = size};
  seen.flight->groups = std::move(groups);
  seen.flight->waits_in = waits_in;
  for (uint32_t i = 0; i < seen.flight->groups.size(); ++i) seen.flight->groups[i].now.group = i;
  return seen;
}

RankSeen in_world(uint32_t rank, uint32_t call, FlightPhase phase, uint32_t size = 3) {
  const bool waits = phase != FlightPhase::done;
  return a_rank(rank, size, {a_group(kWorld, "world", RangeSet(0, size - 1), a_call(call, phase))},
                waits ? std::optional<uint32_t>(0) : std::nullopt);
}

TEST_CASE("those who wait are told apart from those who have not come") {
  std::vector<RankSeen> ranks{in_world(0, 5, FlightPhase::arrived),
                              in_world(1, 4, FlightPhase::done),
                              in_world(2, 5, FlightPhase::arrived)};
  ranks[1].busy = 1;
  const StuckReport report = find_stuck(ranks, false);
  REQUIRE(report.waits.size() == 1);
  CHECK(report.waits[0].group == "world");
  CHECK(report.waits[0].call.call == 5);
  CHECK(report.waits[0].waiting.text() == "0,2");
  CHECK(report.waits[0].arrived.text() == "0,2");
  CHECK(report.waits[0].missing.text() == "1");
  CHECK(report.waits[0].waited_ns == 4'000);
  CHECK(report.ranks[0].doing == Doing::waits);
  CHECK(report.ranks[1].doing == Doing::computes);
  CHECK(last_call(ranks[1], kWorld)->call == 4);
  CHECK(report.deadlocks.empty());
}

TEST_CASE("every phase of a call waits for what it needs") {
  struct Case {
    FlightPhase waiting;
    uint32_t other_call;
    FlightPhase other;
    bool missing;
  };
  for (const Case& c : {Case{FlightPhase::arrived, 5, FlightPhase::begun, true},
                        Case{FlightPhase::arrived, 5, FlightPhase::arrived, false},
                        Case{FlightPhase::arrived, 6, FlightPhase::begun, false},
                        Case{FlightPhase::worked, 5, FlightPhase::arrived, true},
                        Case{FlightPhase::worked, 5, FlightPhase::worked, false},
                        Case{FlightPhase::worked, 5, FlightPhase::done, false},
                        Case{FlightPhase::begun, 4, FlightPhase::arrived, true},
                        Case{FlightPhase::begun, 4, FlightPhase::done, false},
                        Case{FlightPhase::begun, 3, FlightPhase::done, true}}) {
    const std::vector<RankSeen> ranks{in_world(0, 5, c.waiting, 2),
                                      in_world(1, c.other_call, c.other, 2)};
    const StuckReport report = find_stuck(ranks, false);
    CAPTURE(static_cast<int>(c.waiting));
    CAPTURE(c.other_call);
    REQUIRE(report.ranks[0].wait.has_value());
    CHECK(report.waits[*report.ranks[0].wait].missing.empty() == !c.missing);
  }
}

TEST_CASE("ranks that get on are not stuck, wherever they are seen") {
  std::vector<RankSeen> ranks{in_world(0, 5, FlightPhase::arrived),
                              in_world(1, 4, FlightPhase::done),
                              in_world(2, 5, FlightPhase::arrived)};
  for (RankSeen& rank : ranks) rank.moved = true;
  const StuckReport report = find_stuck(ranks, false);
  CHECK(report.waits.empty());
  for (const RankDoing& doing : report.ranks) CHECK(doing.doing == Doing::calls);
}

TEST_CASE("a deadlock over two groups is found, with who waits for whom") {
  const SeenCall idle = a_call(3, FlightPhase::done);
  std::vector<RankSeen> ranks;
  for (const uint32_t rank : {0U, 1U})
    ranks.push_back(a_rank(rank, 3,
                           {a_group(kA, "A", RangeSet(0, 2), a_call(5, FlightPhase::arrived)),
                            a_group(kB, "B", RangeSet(0, 2), idle)},
                           0));
  ranks.push_back(a_rank(2, 3,
                         {a_group(kA, "A", RangeSet(0, 2), a_call(4, FlightPhase::done)),
                          a_group(kB, "B", RangeSet(0, 2), a_call(4, FlightPhase::arrived))},
                         1));
  const StuckReport report = find_stuck(ranks, false);
  REQUIRE(report.waits.size() == 2);
  REQUIRE(report.deadlocks.size() == 1);
  const auto& steps = report.deadlocks[0];
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].ranks.text() == "0-1");
  CHECK(steps[0].wanted.text() == "2");
  CHECK(steps[1].ranks.text() == "2");
  CHECK(steps[1].wanted.text() == "0-1");
}

TEST_CASE("messages that wait for each other are a deadlock, and else name who is missing") {
  const auto receives = [](uint32_t rank, uint32_t from) {
    RankSeen seen = in_world(rank, 4, FlightPhase::done);
    seen.flight->parcel =
        SeenParcel{.kind = ParcelKind::receive, .rank = from, .tag = 7, .began_ns = 2'000};
    return seen;
  };
  const StuckReport round = find_stuck({receives(0, 1), receives(1, 2), receives(2, 0)}, false);
  CHECK(round.waits.size() == 3);
  REQUIRE(round.deadlocks.size() == 1);
  CHECK(round.deadlocks[0].size() == 3);
  const StuckReport chain =
      find_stuck({receives(0, 1), receives(1, 2), in_world(2, 4, FlightPhase::done)}, false);
  CHECK(chain.deadlocks.empty());
  REQUIRE(chain.waits.size() == 2);
  CHECK(chain.waits[1].waiting.text() == "1");
  CHECK(chain.waits[1].missing.text() == "2");
  CHECK(chain.waits[1].waited_ns == 3'000);
}

TEST_CASE("a chain of waits that ends is no deadlock") {
  std::vector<RankSeen> ranks;
  ranks.push_back(
      a_rank(0, 3, {a_group(kA, "A", RangeSet(0, 1), a_call(1, FlightPhase::arrived))}, 0));
  ranks.push_back(a_rank(1, 3,
                         {a_group(kA, "A", RangeSet(0, 1), a_call(0, FlightPhase::done)),
                          a_group(kB, "B", RangeSet(1, 2), a_call(1, FlightPhase::arrived))},
                         1));
  ranks.push_back(a_rank(2, 3, {}));
  ranks[2].letter = 'T';
  const StuckReport report = find_stuck(ranks, false);
  CHECK(report.waits.size() == 2);
  CHECK(report.deadlocks.empty());
  CHECK(report.ranks[2].doing == Doing::stopped);
  CHECK(report.waits[1].missing.text() == "2");
}

TEST_CASE("who has not joined is missing, with or without a record") {
  std::vector<RankSeen> ranks{a_rank(0, 4, {}), a_rank(1, 4, {}), RankSeen{.rank = 2}};
  ranks[0].flight->joining = true;
  ranks[1].flight->epoch = 0;
  const StuckReport report = find_stuck(ranks, false);
  REQUIRE(report.waits.size() == 1);
  CHECK(report.waits[0].what == StuckWait::What::joining);
  CHECK(report.waits[0].missing.text() == "1-3");
}

TEST_CASE("a group that some have not made is waited for") {
  SeenCall making{.phase = FlightPhase::begun, .began_ns = 1'000};
  std::vector<RankSeen> ranks{a_rank(0, 2, {a_group(kA, "A", RangeSet(0, 1), making)}, 0),
                              a_rank(1, 2, {})};
  const StuckReport report = find_stuck(ranks, false);
  REQUIRE(report.waits.size() == 1);
  CHECK(report.waits[0].what == StuckWait::What::making);
  CHECK(report.waits[0].missing.text() == "1");
}

TEST_CASE("calls that differ are named") {
  std::vector<RankSeen> ranks{in_world(0, 5, FlightPhase::arrived, 2),
                              in_world(1, 5, FlightPhase::arrived, 2)};
  ranks[1].flight->groups[0].now.elements = 11;
  ranks[1].flight->groups[0].now.site = "y.py:2";
  const StuckReport report = find_stuck(ranks, false);
  REQUIRE(report.waits.size() == 1);
  REQUIRE(report.waits[0].different.size() == 1);
  CHECK(report.waits[0].different[0].first == "call 5, all_reduce of 11 f32, sum");
  CHECK(report.waits[0].sites.size() == 2);
}

TEST_CASE("those that ended wait only when the past is asked for") {
  std::vector<RankSeen> ranks{in_world(0, 5, FlightPhase::arrived, 2),
                              in_world(1, 4, FlightPhase::done, 2)};
  for (RankSeen& rank : ranks) rank.life = RankSeen::Life::ended;
  CHECK(find_stuck(ranks, false).waits.empty());
  const StuckReport report = find_stuck(ranks, true);
  REQUIRE(report.waits.size() == 1);
  CHECK(report.waits[0].missing.text() == "1");
  CHECK(report.ranks[0].doing == Doing::ended);
}

TEST_CASE("a rank whose epoch is over waits in no call of it") {
  std::vector<RankSeen> ranks{in_world(0, 5, FlightPhase::arrived, 2)};
  ranks[0].epoch_over = true;
  CHECK(find_stuck(ranks, false).waits.empty());
  CHECK(find_stuck(ranks, false).ranks[0].doing == Doing::lost_peer);
  ranks[0].flight->joining = true;
  const StuckReport report = find_stuck(ranks, false);
  REQUIRE(report.waits.size() == 1);
  CHECK(report.waits[0].what == StuckWait::What::next_epoch);
}

}  // namespace
}  // namespace tutti
