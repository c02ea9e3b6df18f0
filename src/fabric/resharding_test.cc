#include "fabric/resharding.h"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>

#include "base/seeds_test.h"
#include "fabric/fabric_fixture_test.h"
#include "fabric/layout_fixture_test.h"

namespace tutti {
namespace {

Layout layout_of(std::vector<MeshAxis> axes, std::vector<uint32_t> ranks, LayoutOptions options) {
  auto layout = Layout::make(*Mesh::make(std::move(axes), std::move(ranks)), std::move(options));
  REQUIRE_MESSAGE(layout.has_value(), layout.error().text());
  return *layout;
}

std::shared_ptr<const Plan> plan_of(std::vector<Move> moves) {
  auto plan = Plan::make(std::move(moves));
  REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
  return std::make_shared<const Plan>(*std::move(plan));
}

std::byte* bytes_of(auto* pointer) { return reinterpret_cast<std::byte*>(pointer); }

// Brings f32 tensors from one layout to the other, with memory in the heap or elsewhere.
void reshard_and_check(Fabric& fabric, Group& group, const std::shared_ptr<const Plan>& plan,
                       bool in_heap) {
  Call call{.kind = CallKind::reshard, .plan = plan, .site = "test"};
  std::vector<std::vector<float>> before;
  std::vector<std::vector<float>> after;
  std::vector<uint64_t> offsets;
  for (uint32_t i = 0; i < plan->moves().size(); ++i) {
    const Move& move = plan->moves()[i];
    before.push_back(held_before(move.from, i, fabric.rank()));
    after.emplace_back(held_after(move.from, move.to, i, fabric.rank()).size(), -1.0F);
    call.inputs.push_back(bytes_of(before.back().data()));
    call.outputs.push_back(bytes_of(after.back().data()));
    if (!in_heap || before.back().empty()) continue;
    offsets.push_back(*fabric.heap().allocate(before.back().size() * 4));
    std::memcpy(fabric.heap().at(offsets.back()), call.inputs.back(), before.back().size() * 4);
    call.inputs.back() = fabric.heap().at(offsets.back());
  }
  const auto done = group.run(call);
  REQUIRE_MESSAGE(done.has_value(), done.error().text());
  for (uint32_t i = 0; i < after.size(); ++i) {
    const Move& move = plan->moves()[i];
    CAPTURE(move.from.text());
    CAPTURE(move.to.text());
    CHECK(after[i] == held_after(move.from, move.to, i, fabric.rank()));
  }
  for (const uint64_t offset : offsets) fabric.heap().free(offset);
}

TEST_CASE("a reshard leaves what a plain copy of the whole would, for any layouts") {
  constexpr uint32_t kRanks = 6;
  on_ranks(kRanks, [](Fabric& fabric) {
    for (uint64_t seed = 0; seed < seeds(200); ++seed) {
      RandomLayouts random(seed);
      std::vector<Move> moves;
      for (uint64_t i = 0; i < random.below(4); ++i) {
        const auto shape = random.shape();
        moves.push_back({"t", random.layout(kRanks, shape), random.layout(kRanks, shape)});
      }
      reshard_and_check(fabric, *fabric.world(), plan_of(moves), random.below(2) == 0);
    }
  });
}

TEST_CASE("large tensors go in slices, with long runs and short ones, whole and partial") {
  const std::vector<uint32_t> all{0, 1, 2, 3};
  const auto by = [&](std::vector<Sharding> shards, std::vector<uint64_t> shape,
                      std::vector<std::string> partial = {}) {
    return layout_of({{"x", 2}, {"y", 2}}, all,
                     {.shape = std::move(shape),
                      .shards = std::move(shards),
                      .partial = std::move(partial),
                      .op = ReduceOp::mean});
  };
  const auto plan = plan_of({
      {"long", by({{0, {"x", "y"}}}, {3'000'001}), by({}, {3'000'001})},
      {"tiles", by({{0, {"x", "y"}}}, {1001, 999}), by({{1, {"y", "x"}}}, {1001, 999})},
      {"short", by({{1, {"x"}}}, {70'001, 7}), by({{0, {"x"}}, {1, {"y"}}}, {70'001, 7})},
      {"sums", by({{0, {"x"}}}, {300, 2001}, {"y"}), by({{0, {"x", "y"}}}, {300, 2001})},
      {"tiled sums", by({{0, {"x"}}}, {5000, 31}, {"y"}), by({{1, {"x"}}}, {5000, 31})},
      {"split", by({}, {300, 31}), by({{1, {"x"}}}, {300, 31}, {"y"})},
  });
  on_ranks(4, [&](Fabric& fabric) {
    for (const bool in_heap : {false, true})
      reshard_and_check(fabric, *fabric.world(), plan, in_heap);
  });
}

TEST_CASE("moments follow their parameter, each in its type") {
  const Layout from =
      layout_of({{"fsdp", 3}}, {0, 1, 2}, {.shape = {10, 5}, .shards = {{0, {"fsdp"}}}});
  const Layout to = layout_of({{"tp", 2}}, {3, 1}, {.shape = {10, 5}, .shards = {{1, {"tp"}}}});
  const auto plan = plan_of({{"w", from, to, {DType::bf16, DType::f32, DType::f64}}});
  const auto fill = [](auto& held, const Layout& layout, uint32_t rank) {
    const auto place = layout.mesh().place_of(rank);
    if (!place) return;
    held.resize(layout.box(*place).elements());
    for_each_element(layout, layout.box(*place), [&](uint64_t global, uint64_t local) {
      held[local] = static_cast<std::decay_t<decltype(held[0])>>(global + 1000);
    });
  };
  on_ranks(4, [&](Fabric& fabric) {
    std::vector<uint16_t> weights, new_weights, expected_weights;
    std::vector<float> first, new_first, expected_first;
    std::vector<double> second, new_second, expected_second;
    fill(weights, from, fabric.rank());
    fill(first, from, fabric.rank());
    fill(second, from, fabric.rank());
    fill(expected_weights, to, fabric.rank());
    fill(expected_first, to, fabric.rank());
    fill(expected_second, to, fabric.rank());
    new_weights.resize(expected_weights.size());
    new_first.resize(expected_first.size());
    new_second.resize(expected_second.size());
    Call call{.kind = CallKind::reshard, .plan = plan};
    if (!weights.empty())
      call.inputs = {bytes_of(weights.data()), bytes_of(first.data()), bytes_of(second.data())};
    if (!new_weights.empty())
      call.outputs = {bytes_of(new_weights.data()), bytes_of(new_first.data()),
                      bytes_of(new_second.data())};
    const auto done = fabric.world()->run(call);
    REQUIRE_MESSAGE(done.has_value(), done.error().text());
    CHECK(new_weights == expected_weights);
    CHECK(new_first == expected_first);
    CHECK(new_second == expected_second);
  });
}

TEST_CASE("a tensor that stays where it is may be its own target") {
  const Layout before = layout_of({{"dp", 2}}, {0, 1}, {.shape = {10'000}});
  const Layout after = layout_of({{"dp", 3}}, {0, 1, 2}, {.shape = {10'000}});
  const auto plan = plan_of({{"w", before, after}});
  on_ranks(3, [&](Fabric& fabric) {
    std::vector<float> weights(10'000, fabric.rank() < 2 ? 7 : 0);
    Call call{.kind = CallKind::reshard, .plan = plan, .outputs = {bytes_of(weights.data())}};
    if (fabric.rank() < 2) call.inputs = {bytes_of(weights.data())};
    REQUIRE(fabric.world()->run(call).has_value());
    CHECK(weights == std::vector<float>(10'000, 7));
  });
}

TEST_CASE("a reshard goes on while its ranks do other things, in the order of calls") {
  const Layout rows =
      layout_of({{"x", 3}}, {0, 1, 2}, {.shape = {3000, 3000}, .shards = {{0, {"x"}}}});
  const Layout columns =
      layout_of({{"x", 3}}, {0, 1, 2}, {.shape = {3000, 3000}, .shards = {{1, {"x"}}}});
  const auto plan = plan_of({{"w", rows, columns}});
  on_ranks(3, [&](Fabric& fabric) {
    Group& world = *fabric.world();
    std::vector<float> in = held_before(rows, 0, fabric.rank());
    std::vector<float> out(in.size());
    std::vector<float> sum(10'000, 1);
    const auto resharding = *world.start({.kind = CallKind::reshard,
                                          .plan = plan,
                                          .inputs = {bytes_of(in.data())},
                                          .outputs = {bytes_of(out.data())}});
    const auto reducing = *world.start({.kind = CallKind::all_reduce,
                                        .elements = sum.size(),
                                        .input = bytes_of(sum.data()),
                                        .output = bytes_of(sum.data())});
    while (!*world.poll(*reducing)) std::this_thread::yield();
    CHECK(resharding->done());
    CHECK(out == held_after(rows, columns, 0, fabric.rank()));
    CHECK(sum == std::vector<float>(10'000, 3));
  });
}

TEST_CASE("ranks with different plans are told, with both places") {
  on_ranks(2, [](Fabric& fabric) {
    const uint64_t size = fabric.rank() == 0 ? 10 : 11;
    const Layout from = layout_of({{"x", 2}}, {0, 1}, {.shape = {size}, .shards = {{0, {"x"}}}});
    const Layout to = layout_of({{"x", 2}}, {0, 1}, {.shape = {size}});
    std::vector<float> in(11);
    std::vector<float> out(11);
    const auto done = fabric.world()->run({.kind = CallKind::reshard,
                                           .plan = plan_of({{"w", from, to}}),
                                           .inputs = {bytes_of(in.data())},
                                           .outputs = {bytes_of(out.data())},
                                           .site = fabric.rank() == 0 ? "a.py:1" : "b.py:2"});
    REQUIRE(!done.has_value());
    CHECK(done.error().code() == Code::invalid);
    CHECK(done.error().text().find("rank 0 reshard of 1 tensors by plan") != std::string::npos);
    CHECK(done.error().text().find("at b.py:2") != std::string::npos);
  });
}

TEST_CASE("bad reshards are refused before anybody waits") {
  on_ranks(2, [](Fabric& fabric) {
    const Layout halves = layout_of({{"x", 2}}, {0, 1}, {.shape = {10}, .shards = {{0, {"x"}}}});
    const Layout whole = layout_of({{"x", 2}}, {0, 1}, {.shape = {10}});
    const Layout far = layout_of({{"x", 2}}, {0, 7}, {.shape = {10}});
    std::vector<float> data(20);
    const auto refusal = [&](Call call) {
      call.kind = CallKind::reshard;
      const auto begun = fabric.world()->start(std::move(call));
      REQUIRE(!begun.has_value());
      CHECK(begun.error().code() == Code::invalid);
      return begun.error().text();
    };
    const auto plan = plan_of({{"w", halves, whole}});
    CHECK(refusal({}) == "a reshard needs a plan; see Plan::make");
    CHECK(refusal({.plan = plan}) ==
          "a reshard of 1 tensors wants as many inputs and outputs, not 0 and 0");
    CHECK(refusal({.plan = plan, .inputs = {nullptr}, .outputs = {bytes_of(data.data())}})
              .find("but brings no input") != std::string::npos);
    CHECK(refusal({.plan = plan, .inputs = {bytes_of(data.data())}, .outputs = {nullptr}})
              .find("but has no output for it") != std::string::npos);
    CHECK(refusal(
              {.plan = plan, .inputs = {bytes_of(data.data())}, .outputs = {bytes_of(data.data())}})
              .starts_with("input and output of w overlap"));
    CHECK(refusal({.plan = plan_of({{"w", halves, far}})})
              .starts_with("rank 7 has a part in the reshard of w, but is not in the group"));
    REQUIRE(fabric.world()->run({}).has_value());
  });
}

TEST_CASE("a death in the middle of a reshard ends it with the name of the dead") {
  const std::vector<uint64_t> shape{4000, 4000};  // more than a slice for each
  const Layout rows = layout_of({{"x", 3}}, {0, 1, 2}, {.shape = shape, .shards = {{0, {"x"}}}});
  const Layout columns = layout_of({{"x", 3}}, {0, 1, 2}, {.shape = shape, .shards = {{1, {"x"}}}});
  const auto plan = plan_of({{"w", rows, columns}});
  SharedHost host(3);
  std::atomic<int> waiting = 0;
  std::atomic<int> told = 0;
  host.run(
      [&](Fabric& fabric) {
        std::vector<float> in = held_before(rows, 0, fabric.rank());
        std::vector<float> out(in.size());
        const Call call{.kind = CallKind::reshard,
                        .plan = plan,
                        .inputs = {bytes_of(in.data())},
                        .outputs = {bytes_of(out.data())}};
        while (fabric.rank() == 1 && waiting.load() < 2) std::this_thread::yield();
        auto begun = fabric.world()->start(call);
        REQUIRE_MESSAGE(begun.has_value(), begun.error().text());
        if (fabric.rank() == 1) {
          CHECK(!(*begun)->done());
          host.die(1);
          fabric.was_killed();
          if (++told == 3) host.begin_epoch(2, 1);
          return;
        }
        ++waiting;
        const auto done = fabric.world()->wait(**begun);
        REQUIRE(!done.has_value());
        CHECK(done.error().code() == Code::unavailable);
        CHECK(done.error().text().find("lost rank 1") != std::string::npos);
        CHECK(fabric.lost() == std::vector<uint32_t>{1});
        begun->reset();  // its group ends with the epoch
        if (++told == 3) host.begin_epoch(2, 1);
        REQUIRE(fabric.join(60s).has_value());
        reshard_and_check(fabric, *fabric.world(), plan, true);
      },
      [&](Fabric& successor) { reshard_and_check(successor, *successor.world(), plan, true); });
}

}  // namespace
}  // namespace tutti
