#include "fabric/plan.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "base/seeds_test.h"
#include "fabric/layout_fixture_test.h"

namespace tutti {
namespace {

Layout layout_of(std::vector<MeshAxis> axes, LayoutOptions options, uint32_t first_rank = 0) {
  uint32_t size = 1;
  for (const MeshAxis& axis : axes) size *= axis.size;
  std::vector<uint32_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), first_rank);
  auto layout = Layout::make(*Mesh::make(std::move(axes), ranks), std::move(options));
  REQUIRE_MESSAGE(layout.has_value(), layout.error().text());
  return *layout;
}

Plan plan_of(std::vector<Move> moves, std::vector<uint32_t> hosts = {}) {
  auto plan = Plan::make(std::move(moves), std::move(hosts));
  REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
  return *std::move(plan);
}

struct Listed {
  uint32_t move;
  uint32_t to;
  std::vector<uint32_t> from;
  std::string slice;
  auto operator<=>(const Listed&) const = default;
};
Listed listed(const SliceCopy& copy) {
  return {copy.move, copy.to, {copy.from.begin(), copy.from.end()}, copy.slice.text()};
}

uint64_t index_in(const Box& box, const Layout& layout, uint64_t global) {
  uint64_t local = 0;
  uint64_t stride = 1;
  for (uint32_t d = box.dimensions; d-- > 0;) {
    const uint64_t at = global % layout.shape()[d];
    global /= layout.shape()[d];
    REQUIRE(at >= box.begin[d]);
    REQUIRE(at < box.begin[d] + box.extent[d]);
    local += (at - box.begin[d]) * stride;
    stride *= box.extent[d];
  }
  return local;
}

// Executes a move of a plan element by element, and compares with what should be.
void check_move(const Plan& plan, uint32_t index, uint32_t ranks) {
  const Move& move = plan.moves()[index];
  std::vector<std::vector<float>> before;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    before.push_back(held_before(move.from, index, rank));
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const std::vector<float> expected = held_after(move.from, move.to, index, rank);
    std::vector<float> after(expected.size());
    std::vector<int> written(expected.size());
    plan.visit_received(rank, [&](const SliceCopy& copy) {
      if (copy.move != index) return;
      CHECK(copy.to == rank);
      CHECK(copy.slice.elements() > 0);
      for_each_element(move.to, copy.slice, [&](uint64_t global, uint64_t) {
        std::vector<float> lanes;
        for (const uint32_t from : copy.from)
          lanes.push_back(before[from][index_in(copy.source, move.from, global)]);
        const uint64_t target = index_in(copy.target, move.to, global);
        ++written[target];
        if (lanes.size() == 1) after[target] = lanes[0];
        if (lanes.size() > 1) {
          for (uint32_t lane = 0; lane < lanes.size(); ++lane)
            CHECK(lanes[lane] == lane_value(index, lane, global));
          after[target] = whole_value(move.from, index, global);
        }
      });
    });
    CHECK(std::ranges::count(written, 1) == std::ssize(written));
    CHECK(after == expected);
  }
}

TEST_CASE("a plan brings every element where it should be, once, between any two layouts") {
  constexpr uint32_t kRanks = 16;
  for (uint64_t seed = 0; seed < seeds(1000); ++seed) {
    CAPTURE(seed);
    RandomLayouts random(seed);
    std::vector<Move> moves;
    for (uint64_t i = 0; i < 1 + random.below(3); ++i) {
      const auto shape = random.shape();
      moves.push_back({"t", random.layout(kRanks, shape), random.layout(kRanks, shape)});
    }
    std::vector<uint32_t> hosts;
    for (uint32_t rank = 0; rank < kRanks && random.below(2) == 0; ++rank) hosts.assign(kRanks, 0);
    for (uint32_t& host : hosts) host = static_cast<uint32_t>(random.below(3));
    const Plan plan = plan_of(moves, hosts);
    for (uint32_t i = 0; i < moves.size(); ++i) check_move(plan, i, kRanks);

    // What is sent is what is received.
    std::multiset<Listed> received;
    std::multiset<Listed> sent;
    std::multiset<Listed> all;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      plan.visit_received(rank, [&](const SliceCopy& copy) { received.insert(listed(copy)); });
      plan.visit_sent(rank, [&](const SliceCopy& copy) {
        CHECK(std::ranges::find(copy.from, rank) != copy.from.end());
        if (copy.from.front() == rank) sent.insert(listed(copy));
      });
    }
    plan.visit_all([&](const SliceCopy& copy) { all.insert(listed(copy)); });
    CHECK(received == all);
    std::erase_if(all, [](const Listed& copy) { return copy.from.empty(); });
    CHECK(sent == all);
  }
}

TEST_CASE("what a rank holds it takes from itself, and else from its host") {
  // Four replicas of two shards, on two hosts, become six.
  const Layout from = layout_of({{"dp", 4}, {"x", 2}}, {.shape = {100}, .shards = {{0, {"x"}}}});
  const Layout to = layout_of({{"dp", 6}, {"x", 2}}, {.shape = {100}, .shards = {{0, {"x"}}}});
  const Plan plan = plan_of({{"w", from, to}}, {0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1});
  std::map<uint32_t, uint32_t> source;
  plan.visit_all([&](const SliceCopy& copy) { source[copy.to] = copy.from[0]; });
  CHECK(source.size() == 12);
  for (uint32_t rank = 0; rank < 8; ++rank) CHECK(source[rank] == rank);
  CHECK(source[8] / 4 == 0);
  CHECK(source[9] / 4 == 0);
  CHECK(source[10] / 4 == 1);
  CHECK(source[11] / 4 == 1);
  const PlanTotals totals = plan.totals();
  CHECK(totals.copies == 12);
  CHECK(totals.kept_bytes == 8UL * 50 * 4);
  CHECK(totals.moved_bytes == 4UL * 50 * 4);
}

TEST_CASE("senders are balanced by bytes, over all tensors") {
  // Eight replicas feed one that joins, with tensors of very different sizes.
  std::vector<Move> moves;
  uint64_t all = 0;
  for (uint64_t i = 1; i <= 200; ++i) {
    const std::vector<uint64_t> shape(1, i % 2 == 0 ? 10 : 200);
    moves.push_back({fmt::format("t{}", i), layout_of({{"dp", 8}}, {.shape = shape}),
                     layout_of({{"dp", 1}}, {.shape = shape}, 8)});
    all += shape[0] * 4;
  }
  CHECK(plan_of(moves).totals().most_sent_bytes <= all / 8 + 200 * 4);
  // One tensor for everybody: each of the old ones sends to two of the new.
  const Plan spread = plan_of({{"w", layout_of({{"dp", 8}}, {.shape = {64}}),
                                layout_of({{"dp", 16}}, {.shape = {64}}, 8)}});
  CHECK(spread.totals().most_sent_bytes == 2 * 64 * 4);
  // Those that must send anyway are spared: rank 0 alone has "big".
  const Plan spared = plan_of(
      {{"small", layout_of({{"dp", 2}}, {.shape = {8}}), layout_of({{"dp", 1}}, {.shape = {8}}, 2)},
       {"big", layout_of({}, {.shape = {800}}), layout_of({{"dp", 1}}, {.shape = {800}}, 2)}});
  spared.visit_received(
      2, [&](const SliceCopy& copy) { CHECK(copy.from[0] == (copy.move == 0 ? 1U : 0U)); });
}

TEST_CASE("two boxes exchange one slice at most") {
  const Layout rows = layout_of({{"x", 4}}, {.shape = {64, 64}, .shards = {{0, {"x"}}}});
  const Layout columns = layout_of({{"x", 4}}, {.shape = {64, 64}, .shards = {{1, {"x"}}}});
  CHECK(plan_of({{"w", rows, columns}}).totals().copies == 16);
  CHECK(plan_of({{"w", rows, rows}}).totals().moved_bytes == 0);
  CHECK(plan_of({{"w", rows, rows}}).totals().copies == 4);
}

TEST_CASE("equal plans have equal hashes, and are made once") {
  const auto make = [](uint64_t rows, DType moment) {
    return std::vector<Move>{{"w",
                              layout_of({{"x", 4}}, {.shape = {rows}, .shards = {{0, {"x"}}}}),
                              layout_of({{"x", 3}}, {.shape = {rows}, .shards = {{0, {"x"}}}}),
                              {DType::bf16, moment}}};
  };
  PlanCache cache;
  const auto one = *cache.plan(make(10, DType::f32));
  CHECK(*cache.plan(make(10, DType::f32)) == one);
  CHECK(cache.made() == 1);
  CHECK((*cache.plan(make(11, DType::f32)))->hash() != one->hash());
  CHECK((*cache.plan(make(10, DType::f64)))->hash() != one->hash());
  CHECK((*cache.plan(make(10, DType::f32), {0, 0, 1, 1}))->hash() != one->hash());
  CHECK(cache.made() == 4);
  for (uint64_t rows = 20; rows < 60; ++rows) REQUIRE(cache.plan(make(rows, DType::f32)));
  CHECK(*cache.plan(make(10, DType::f32)) != one);  // long not used
  CHECK(one->element_bytes(0) == 6);
}

TEST_CASE("layouts of different tensors are refused with words") {
  const Layout a = layout_of({{"x", 2}}, {.shape = {8}, .shards = {{0, {"x"}}}});
  const Layout b = layout_of({{"x", 2}}, {.shape = {9}, .shards = {{0, {"x"}}}});
  CHECK(Plan::make({{"w", a, b}}).error().text() ==
        "w cannot go from (8 by x) on x=2 of ranks 0-1 to (9 by x) on x=2 of ranks 0-1: layouts of "
        "one tensor have one shape");
  CHECK(Plan::make({{"w", a, a, {}}}).error().text() == "w has no type; name that of its elements");
  CHECK(Plan::make({{"w", a, a}}, {0}).error().text() ==
        "the hosts of 1 ranks are told, but rank 1 takes part");
}

}  // namespace
}  // namespace tutti
