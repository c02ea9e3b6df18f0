#include "cluster/control_pages.h"

#include <doctest/doctest.h>

#include <thread>

#include "world/real/real_world.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

struct Pages {
  Simulator sim{{.seed = 3, .hosts = 1}};
  World& world = sim.host(0);
  Handle arena;
  std::unique_ptr<Mapping> awake;  // so that pages stay where they are
  std::unique_ptr<ControlPages> pages;

  explicit Pages(uint32_t ranks, uint64_t epoch = 5) {
    const uint64_t bytes = ranks * kControlPageBytes;
    arena = *world.memory().create_arena("pages", bytes);
    awake = std::move(*world.memory().map(arena, 0, bytes, true));
    pages = std::move(*ControlPages::open(world, arena));
    for (uint32_t rank = 0; rank < ranks; ++rank)
      REQUIRE(pages->initialise(rank * kControlPageBytes, rank, epoch).has_value());
  }
  tutti_control_page& page(uint32_t rank) { return *pages->find(rank * kControlPageBytes); }
  void died(uint32_t first, uint32_t last) {
    CHECK(pages->apply({.died = {{first, last}}}).empty());
  }
};

TEST_CASE("a new page has its rank and epoch, and nothing is over") {
  Pages all(2, 0);
  CHECK(all.page(1).rank == 1);
  CHECK(tutti_control_epoch(&all.page(1)) == kFirstEpoch);
  CHECK(!tutti_control_aborted(&all.page(1), kFirstEpoch));
  CHECK(read_dead(all.page(1)).empty());
}

TEST_CASE("pages are where they can be, and nowhere else") {
  Pages all(2);
  CHECK(all.pages->find(512) == nullptr);
  CHECK(all.pages->find(2 * kControlPageBytes) == nullptr);
  CHECK(all.pages->initialise(512, 0, 1).error().code() == Code::invalid);
  CHECK(all.pages->initialise(2 * kControlPageBytes, 0, 1).error().code() == Code::invalid);
  CHECK(all.pages->initialise(~uint64_t{1023}, 0, 1).error().code() == Code::invalid);
  all.pages->erase(kControlPageBytes);
  CHECK(all.pages->find(kControlPageBytes) == nullptr);
}

TEST_CASE("who died and is back is lost to those of earlier epochs, and to no others") {
  Pages all(3);
  const ControlChange first{.epoch = 6, .ends_older = true, .returned = {{1, 1}}, .clear = true};
  CHECK(all.pages->apply(first).empty());
  CHECK(all.pages->apply(first).empty());  // told twice
  const tutti_control_page& page = all.page(0);
  CHECK(read_dead(page).empty());
  CHECK(read_lost(page, 5) == RankRanges{{1, 1}});
  CHECK(read_lost(page, 6).empty());
  CHECK(page.returned_count == 1);
  CHECK(all.pages
            ->apply({.epoch = 8, .ends_older = true, .returned = {{2, 2}, {7, 9}}, .clear = true})
            .empty());
  CHECK(read_lost(page, 5) == RankRanges{{1, 2}, {7, 9}});  // who slept through both
  CHECK(read_lost(page, 6) == RankRanges{{2, 2}, {7, 9}});
  CHECK(read_lost(page, 8).empty());
  all.died(2, 2);
  CHECK(read_lost(page, 8) == RankRanges{{2, 2}});
  CHECK(read_lost(page, 5) == RankRanges{{1, 2}, {7, 9}});
  all.pages->apply({.epoch = 8, .revived = {{2, 2}}, .returned = {{2, 2}}});  // begun later in it
  CHECK(read_dead(page).empty());
}

TEST_CASE("those who are back make room for the dead, the earliest first") {
  Pages all(1);
  for (uint32_t i = 0; i < 2 * kMostReturned; ++i)
    all.pages->apply({.epoch = 6 + i, .returned = {{100 + 2 * i, 100 + 2 * i}}, .clear = true});
  const tutti_control_page& page = all.page(0);
  CHECK(page.returned_count == kMostReturned);
  CHECK(read_lost(page, 0).front() == RankRange{100 + 2 * kMostReturned, 100 + 2 * kMostReturned});
  for (uint32_t i = 0; i < TUTTI_CONTROL_RANGES - 3; ++i) all.died(1000 + 2 * i, 1000 + 2 * i);
  CHECK(read_dead(page).size() == TUTTI_CONTROL_RANGES - 3);
  CHECK(page.dead_truncated == 0);
  const uint32_t last = 100 + 2 * (2 * kMostReturned - 1);
  CHECK(read_lost(page, 0).front() == RankRange{last, last});
  CHECK(read_lost(page, 0).size() == TUTTI_CONTROL_RANGES - 2);
}

TEST_CASE("an epoch that deaths began ends those before it, and not itself") {
  Pages all(3);
  all.died(1, 1);
  ControlChange change{.epoch = 6, .ends_older = true, .gone = {{7, 8}}, .clear = true};
  CHECK(all.pages->apply(change).empty());
  CHECK(all.pages->apply(change).empty());  // told twice
  for (const uint32_t rank : {0U, 1U, 2U}) {
    CHECK(tutti_control_epoch(&all.page(rank)) == 6);
    CHECK(tutti_control_aborted(&all.page(rank), 5));
    CHECK(!tutti_control_aborted(&all.page(rank), 6));
    CHECK(read_dead(all.page(rank)) == RankRanges{{7, 8}});  // 1 is started again in it
  }
}

TEST_CASE("a death is in every page but its own, and their epoch is over") {
  Pages all(3);
  const uint32_t word = tutti_control_word(&all.page(0));
  all.died(1, 1);
  CHECK(read_dead(all.page(0)) == RankRanges{{1, 1}});
  CHECK(read_dead(all.page(2)) == RankRanges{{1, 1}});
  CHECK(read_dead(all.page(1)).empty());
  CHECK(tutti_control_aborted(&all.page(0), 5));
  CHECK(!tutti_control_aborted(&all.page(0), 6));
  CHECK(!tutti_control_aborted(&all.page(1), 5));
  CHECK(tutti_control_word(&all.page(0)) != word);
}

TEST_CASE("who has no part in an epoch does not end it, only those in which it lived") {
  Pages all(3);
  const ControlChange next{.epoch = 6, .leaving = {{1, 1}}, .clear = true};
  CHECK(all.pages->apply(next).empty());
  CHECK(all.pages->apply(next).empty());  // told twice
  CHECK(tutti_control_epoch(&all.page(0)) == 6);
  CHECK(!tutti_control_aborted(&all.page(0), 5));
  CHECK(tutti_control_epoch(&all.page(1)) == 5);
  CHECK(tutti_control_aborted(&all.page(1), 5));
  CHECK(!tutti_control_aborted(&all.page(1), 6));
  REQUIRE(all.pages->initialise(2 * kControlPageBytes, 2, 5).has_value());  // not moved yet
  const uint32_t word = tutti_control_word(&all.page(0));
  all.page(0).sequence = 1;  // also of a page that is busy there is nothing to do
  CHECK(all.pages->apply({.died = {{1, 1}}, .last_epoch = 5}).empty());
  all.page(0).sequence = 2;
  CHECK(read_dead(all.page(0)).empty());
  CHECK(!tutti_control_aborted(&all.page(0), 5));
  CHECK(tutti_control_word(&all.page(0)) == word);
  CHECK(read_dead(all.page(2)) == RankRanges{{1, 1}});
  CHECK(tutti_control_aborted(&all.page(2), 5));
  CHECK(!tutti_control_aborted(&all.page(2), 6));
}

TEST_CASE("dead ranks become ranges, whatever their order") {
  Pages all(1);
  for (const uint32_t rank : {9, 7, 20, 8, 3, 21}) all.died(rank, rank);
  CHECK(read_dead(all.page(0)) == RankRanges{{3, 3}, {7, 9}, {20, 21}});
  all.died(1, 30);
  CHECK(read_dead(all.page(0)) == RankRanges{{1, 30}});
  all.died(0xFFFFFFFF, 0xFFFFFFFF);
  CHECK(read_dead(all.page(0)) == RankRanges{{1, 30}, {0xFFFFFFFF, 0xFFFFFFFF}});
}

TEST_CASE("a rank is not among the dead of its own page") {
  Pages all(3);
  all.died(0, 2);
  CHECK(read_dead(all.page(0)) == RankRanges{{1, 2}});
  CHECK(read_dead(all.page(1)) == RankRanges{{0, 0}, {2, 2}});
}

TEST_CASE("more dead than a page holds are truncated, and said to be") {
  Pages all(1);
  for (uint32_t i = 1; i <= TUTTI_CONTROL_RANGES; ++i) all.died(2 * i, 2 * i);
  CHECK(read_dead(all.page(0)).size() == TUTTI_CONTROL_RANGES);
  CHECK(all.page(0).dead_truncated == 0);
  all.died(1000, 1000);
  CHECK(read_dead(all.page(0)).size() == TUTTI_CONTROL_RANGES);
  CHECK(all.page(0).dead_truncated != 0);
  CHECK(all.pages->apply({.clear = true}).empty());
  CHECK(read_dead(all.page(0)).empty());
  CHECK(all.page(0).dead_truncated == 0);
}

TEST_CASE("an epoch begins with those who came back, and never goes back itself") {
  Pages all(2);
  all.died(3, 6);
  CHECK(all.pages->apply({.epoch = 6, .revived = {{4, 4}}}).empty());
  CHECK(tutti_control_epoch(&all.page(0)) == 6);
  CHECK(!tutti_control_aborted(&all.page(0), 6));
  CHECK(all.pages->dead() == RankRanges{{3, 3}, {5, 6}});
  CHECK(all.pages->apply({.epoch = 4}).empty());
  CHECK(tutti_control_epoch(&all.page(0)) == 6);
  CHECK(all.pages->apply({.abort = 6}).empty());
  CHECK(tutti_control_aborted(&all.page(0), 6));
}

TEST_CASE("a page somebody holds is told of the abort at once, and of the dead when it is free") {
  Pages all(2);
  all.page(0).sequence = 7;
  const ControlChange change{.died = {{1, 1}}};
  const ControlPages::Busy busy = all.pages->apply(change);
  CHECK(busy == ControlPages::Busy{0});
  CHECK(tutti_control_aborted(&all.page(0), 5));
  CHECK(all.page(0).dead_count == 0);
  CHECK(all.pages->retry(change, busy, false) == busy);
  all.page(0).sequence = 8;
  CHECK(all.pages->retry(change, busy, false).empty());
  CHECK(read_dead(all.page(0)) == RankRanges{{1, 1}});
  CHECK(all.page(0).dead_truncated == 0);
}

TEST_CASE("who died holding a page wedges nobody: readers go on, and the lock is taken over") {
  Pages all(2);
  all.died(9, 9);
  all.page(0).sequence |= 1;
  all.page(0).dead[0] = 0;  // it had begun to move things
  CHECK(read_dead(all.page(0)) == RankRanges{{0, 0}});
  auto applied = all.sim.run(all.pages->apply_fully({.died = {{1, 1}}}), 1h);
  CHECK(applied.has_value());
  CHECK((all.page(0).sequence & 1) == 0);
  CHECK(all.page(0).dead_truncated != 0);
  CHECK(read_dead(all.page(0)) == RankRanges{{1, 1}});  // its own rank, 0, is never in it
}

TEST_CASE("nonsense in a page does not lead out of it") {
  Pages all(1);
  all.page(0).dead_count = 0xFFFFFFFF;
  for (uint64_t& range : all.page(0).dead) range = 0x0000000100000005;  // from 5 to 1
  CHECK(read_dead(all.page(0)).empty());
  all.died(4, 4);
  CHECK(read_dead(all.page(0)) == RankRanges{{4, 4}});
}

// Two sides write and one reads at the same time: each range that is seen was written whole, and
// in the end nothing is missing. Both sides mark pairs of ranks that are all even or all odd.
TEST_CASE("two writers do not tear each other's sets") {
  constexpr uint32_t kRounds = 3000;
  RealWorld world({.spin = 0s});
  const Handle arena = *world.memory().create_arena("pages", kControlPageBytes);
  auto pages = *ControlPages::open(world, arena);
  REQUIRE(pages->initialise(0, 0, 1).has_value());
  const auto write = [&](uint32_t first) {
    RealWorld own({.spin = 0s});
    auto mine = *ControlPages::open(own, arena);
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t at = first + 1000 * (round % 50);
      own.run(mine->apply_fully({.died = {{at, at + 10}}})).value();
      own.run(mine->apply_fully({.revived = {{at, at + 10}}})).value();
    }
    own.run(mine->apply_fully({.died = {{first, first}}})).value();
  };
  std::thread one(write, 100);
  std::thread other(write, 500);
  uint32_t torn = 0;
  const tutti_control_page& page = *pages->find(0);
  for (uint32_t look = 0; look < kRounds; ++look)
    for (const RankRange range : read_dead(page))
      torn += range.last - range.first == 10 || range.last == range.first ? 0 : 1;
  one.join();
  other.join();
  CHECK(torn == 0);
  CHECK(read_dead(page) == RankRanges{{100, 100}, {500, 500}});
  CHECK(page.dead_truncated == 0);
}

}  // namespace
}  // namespace tutti
