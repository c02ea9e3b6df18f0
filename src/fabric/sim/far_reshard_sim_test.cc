// Reshards over several hosts leave what a plain copy of the whole would, and who leaves or calls
// something else is told of.
#include <doctest/doctest.h>

#include <cstring>
#include <numeric>

#include "fabric/layout_fixture_test.h"
#include "fabric/sim/gang.h"

namespace tutti {
namespace {

using Shape = std::vector<uint32_t>;

const Shape kShapes[] = {{1, 1}, {2, 2}, {3, 1, 2}, {1, 4}, {1, 1, 1, 1, 1}, {2, 2, 2}};

Task<Result<void>> run_gang(SimGang& gang) {
  gang.start();
  auto finished = co_await gang.finish();
  co_return finished;
}

struct Stay {
  bool stays = true;
};

// Gives how many bytes travelled.
uint64_t on_hosts(const Shape& shape, SimGang::Body body, Stay stay = {}) {
  CAPTURE(shape.size());
  Simulator sim({.seed = 5, .hosts = static_cast<uint32_t>(shape.size())});
  std::vector<uint32_t> nodes;
  for (uint32_t host = 0; host < shape.size(); ++host) nodes.insert(nodes.end(), shape[host], host);
  const auto wires = std::make_shared<FlowWires>(sim, NetModel(), std::move(nodes));
  const auto gang =
      SimGang::make(sim, {.wires = wires, .body = std::move(body), .stays = stay.stays});
  const auto ran = sim.run(run_gang(*gang), 10min);
  REQUIRE_MESSAGE(ran.has_value(), ran.error().text());
  CHECK(gang->losses() == 0);
  return wires->hub().got_bytes();
}

std::byte* bytes_of(auto* pointer) { return reinterpret_cast<std::byte*>(pointer); }

// Every second time from the heap.
Task<Result<void>> reshard_and_check(Fabric& fabric, World& world, std::shared_ptr<const Plan> plan,
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
  auto done = co_await call_in(world, *fabric.world(), std::move(call));
  if (!done) co_return done;
  for (const uint64_t offset : offsets) {
    *reinterpret_cast<float*>(fabric.heap().at(offset)) = -2;  // what was given may change now
    fabric.heap().free(offset);
  }
  for (uint32_t i = 0; i < after.size(); ++i) {
    const Move& move = plan->moves()[i];
    CAPTURE(move.from.text());
    CAPTURE(move.to.text());
    CHECK(after[i] == held_after(move.from, move.to, i, fabric.rank()));
  }
  co_return Result<void>{};
}

std::vector<uint32_t> hosts_of(Fabric& fabric) {
  std::vector<uint32_t> hosts;
  for (uint32_t rank = 0; rank < fabric.world_size(); ++rank) hosts.push_back(fabric.node_of(rank));
  return hosts;
}

std::shared_ptr<const Plan> plan_of(std::vector<Move> moves, std::vector<uint32_t> hosts = {}) {
  auto plan = Plan::make(std::move(moves), std::move(hosts));
  REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
  return std::make_shared<const Plan>(*std::move(plan));
}

Task<Result<void>> reshard_at_random(Fabric& fabric, World& world) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomLayouts random(seed);
    std::vector<Move> moves;
    for (uint64_t i = 0; i < random.below(4); ++i) {
      const auto shape = random.shape();
      moves.push_back({"t", random.layout(fabric.world_size(), shape),
                       random.layout(fabric.world_size(), shape)});
    }
    auto plan = plan_of(std::move(moves), seed % 2 == 0 ? hosts_of(fabric) : Shape());
    const bool in_heap = random.below(2) == 0;
    auto done = co_await reshard_and_check(fabric, world, std::move(plan), in_heap);
    if (!done) co_return done;
  }
  co_return Result<void>{};
}

TEST_CASE("a reshard over hosts leaves what a plain copy of the whole would, for any layouts") {
  for (const Shape& shape : kShapes) on_hosts(shape, reshard_at_random);
}

Layout layout_of(std::vector<MeshAxis> axes, LayoutOptions options) {
  auto layout = Layout::make(*Mesh::make(std::move(axes)), std::move(options));
  REQUIRE_MESSAGE(layout.has_value(), layout.error().text());
  return *layout;
}

Task<Result<void>> reshard_large(Fabric& fabric, World& world) {
  const auto by = [](std::vector<Sharding> shards, std::vector<uint64_t> shape,
                     std::vector<std::string> partial = {}) {
    return layout_of({{"x", 2}, {"y", 2}}, {.shape = std::move(shape),
                                            .shards = std::move(shards),
                                            .partial = std::move(partial),
                                            .op = ReduceOp::mean});
  };
  auto plan = plan_of({
      {"long", by({{0, {"x", "y"}}}, {700'001}), by({}, {700'001})},
      {"tiles", by({{0, {"x", "y"}}}, {501, 999}), by({{1, {"y", "x"}}}, {501, 999})},
      {"short", by({{1, {"x"}}}, {30'001, 7}), by({{0, {"x"}}, {1, {"y"}}}, {30'001, 7})},
      {"sums", by({{0, {"x"}}}, {300, 2001}, {"y"}), by({{0, {"x", "y"}}}, {300, 2001})},
      {"tiled sums", by({{0, {"x"}}}, {5000, 31}, {"y"}), by({{1, {"x"}}}, {5000, 31})},
      {"all sums", by({}, {500, 31}, {"x", "y"}), by({{1, {"x"}}}, {500, 31})},
  });
  return reshard_and_check(fabric, world, std::move(plan), false);
}

TEST_CASE("large tensors come over hosts in pieces, whole and partial") {
  for (const Shape& shape : {Shape{1, 3}, Shape{2, 2}, Shape{1, 1, 1, 1}})
    on_hosts(shape, reshard_large);
}

TEST_CASE("a plan that knows the hosts lets nothing travel that is there") {
  const auto everything = [](bool knows) {
    return on_hosts({2, 2}, [knows](Fabric& fabric, World& world) {
      const Layout from =
          layout_of({{"host", 2}, {"x", 2}},
                    {.shape = {4000, 3}, .shards = {{.dimension = 0, .axes = {"x"}}}});
      const Layout to = layout_of({{"host", 2}, {"x", 2}}, {.shape = {4000, 3}});
      auto plan = plan_of({{"w", from, to}}, knows ? hosts_of(fabric) : Shape());
      return reshard_and_check(fabric, world, std::move(plan), false);
    });
  };
  CHECK(everything(true) == 0);
}

// Everybody is told, with both lines.
Task<Result<void>> disagree(Fabric& fabric, World& world) {
  const bool odd = fabric.rank() == 3;
  const auto over = [&](uint64_t elements) {
    return layout_of({{"x", fabric.world_size()}},
                     {.shape = {elements}, .shards = {{.axes = {"x"}}}});
  };
  const Layout from = over(odd ? 1000 : 2000);
  const Layout to = layout_of({{"x", fabric.world_size()}}, {.shape = {odd ? 1000U : 2000U}});
  std::vector<float> in(2000);
  std::vector<float> out(2000);
  Call call{.kind = CallKind::reshard,
            .plan = plan_of({{"w", from, to}}),
            .inputs = {bytes_of(in.data())},
            .outputs = {bytes_of(out.data())},
            .site = odd ? "odd.py:7" : "train.py:41"};
  auto done = co_await call_in(world, *fabric.world(), std::move(call));
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().code() == Code::invalid);
  CHECK(done.error().text().contains("odd.py:7"));
  CHECK(done.error().text().contains("train.py:41"));
  co_return Result<void>{};
}

TEST_CASE("hosts that do not reshard by the same plan are told so") {
  on_hosts({1, 1, 1, 1, 1}, disagree);
  on_hosts({3, 1, 1}, disagree);
  on_hosts({2, 2, 2}, disagree);
}

// The last rank leaves after two calls; all others go on.
Task<Result<void>> leave_early(Fabric& fabric, World& world) {
  const uint32_t last = fabric.world_size() - 1;
  for (int i = 0; i < 2; ++i) {
    std::vector<int64_t> data(1000, 1);
    Call call{.kind = CallKind::all_reduce,
              .type = DType::i64,
              .elements = data.size(),
              .input = bytes_of(data.data()),
              .output = bytes_of(data.data())};
    auto done = co_await call_in(world, *fabric.world(), std::move(call));
    if (!done) co_return done;
    CHECK(data[0] == fabric.world_size());
  }
  if (fabric.rank() == last) co_return Result<void>{};
  const Instant before = world.clock().now();
  Call barrier{.kind = CallKind::barrier};
  auto met = co_await call_in(world, *fabric.world(), std::move(barrier));
  REQUIRE_FALSE(met.has_value());
  CHECK(met.error().code() == Code::unavailable);
  CHECK(met.error().text().contains(fmt::format("rank {} has left", last)));
  CHECK(fabric.lost() == std::vector<uint32_t>{last});
  CHECK(world.clock().now() - before < 1s);
  auto again = fabric.world()->start({.kind = CallKind::barrier});
  CHECK_FALSE(again.has_value());
  co_return Result<void>{};
}

TEST_CASE("whoever waits for a rank of another host that has left is told at once") {
  for (const Shape& shape : kShapes) on_hosts(shape, leave_early, {.stays = false});
  on_hosts({9, 9, 9}, leave_early, {.stays = false});  // more than are told one by one
}

// One does not come: whoever waits is told for whom, as far as it can know.
Task<Result<void>> wait_in_vain(Fabric& fabric, World& world) {
  if (fabric.rank() == 1) {
    auto slept = co_await world.clock().sleep(3s);
    if (!slept) co_return slept;
  }
  Call barrier{.kind = CallKind::barrier, .site = "here"};
  CO_TRY(auto operation, fabric.world()->start(std::move(barrier)));
  auto waited = co_await fabric.world()->wait(world, operation, 1s);
  if (fabric.rank() != 1) {
    REQUIRE_FALSE(waited.has_value());
    CHECK(waited.error().code() == Code::deadline);
    CHECK(waited.error().text().contains("ranks 1 of other hosts"));
    auto again = co_await fabric.world()->wait(world, operation, 10s);
    co_return again;
  }
  co_return waited;
}

TEST_CASE("whose time is up is told for which rank of another host it waits") {
  on_hosts({1, 1}, wait_in_vain);
}

}  // namespace
}  // namespace tutti
