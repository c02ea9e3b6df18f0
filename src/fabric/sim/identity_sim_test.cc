// One order of reduction between hosts: the same bits over all combinations of transport, rank
// count, how ranks lie over hosts, way and bucket size. In memory: ../identity_test.cc.
#include <doctest/doctest.h>

#include <numeric>

#include "fabric/identity_test.h"
#include "fabric/sim/gang.h"

namespace tutti {
namespace {

struct Identity {
  IdentityCase sums{11};
  uint64_t expected = sums.expected();
};

Task<Result<void>> sum_everything(const Identity& identity, std::optional<RailWay> way,
                                  Fabric& fabric, World& world) {
  fabric.world()->set_way(way);
  for (const uint64_t bytes : kIdentityBuckets) {
    IdentityRank own(identity.sums, fabric.world_size(), fabric.rank());
    CO_TRY(auto buckets, own.buckets(fabric.world(), bytes));
    for (uint32_t i = 0; i < own.tensors(); ++i) CO_TRY_DO(buckets->ready(i));
    auto waited = co_await buckets->wait(world, 60s);
    if (!waited) co_return waited;
    CHECK(own.digest() == identity.expected);
  }
  co_return Result<void>{};
}

Task<Result<void>> run_gang(SimGang& gang) {
  gang.start();
  auto finished = co_await gang.finish();
  co_return finished;
}

TEST_CASE("a digest is the same for any transport, rank count, way and bucket size") {
  const Identity identity;
  const std::vector<uint32_t> shapes[] = {{1},    {1, 1},    {2, 1},       {1, 1, 1, 1},
                                          {4, 1}, {2, 2, 2}, {3, 1, 2, 1}, {4, 4}};
  for (const auto& shape : shapes) {
    std::vector<uint32_t> nodes;
    for (uint32_t host = 0; host < shape.size(); ++host)
      nodes.insert(nodes.end(), shape[host], host);
    for (const bool tcp : {false, true}) {
      for (const auto way : {RailWay::direct, RailWay::halving, RailWay::tree}) {
        if (tcp && way != RailWay::direct && shape.size() < 3) continue;  // as over the other
        CAPTURE(nodes.size());
        CAPTURE(tcp);
        Simulator sim({.seed = 5, .hosts = static_cast<uint32_t>(shape.size())});
        std::shared_ptr<GangWires> wires;
        if (tcp) wires = std::make_shared<TcpWires>(nodes, TcpWiresOptions{.seed = 5});
        if (!tcp) wires = std::make_shared<FlowWires>(sim, NetModel(), nodes);
        const auto gang =
            SimGang::make(sim, {.wires = std::move(wires),
                                .body =
                                    [&identity, way](Fabric& fabric, World& world) {
                                      return sum_everything(identity, way, fabric, world);
                                    },
                                .bytes_each = 128 << 20});
        const auto ran = sim.run(run_gang(*gang), 10min);
        REQUIRE_MESSAGE(ran.has_value(), ran.error().text());
      }
    }
  }
}

// Over hosts an update sees the whole share at once, in the caller's thread.
Task<Result<void>> update_once(Fabric& fabric, World& world) {
  constexpr uint64_t kEach = 30'001;
  std::vector<float> gradient(fabric.world_size() * kEach, 1);
  std::vector<float> reduced(kEach);
  std::vector<float> weights(kEach, 10);
  uint64_t next = 0;
  Call call{.kind = CallKind::reduce_scatter,
            .elements = gradient.size(),
            .input = reinterpret_cast<const std::byte*>(gradient.data()),
            .output = reinterpret_cast<std::byte*>(reduced.data())};
  call.update = [&](uint64_t first, std::byte* block, uint64_t elements) {
    CHECK(first == next);
    next += elements;
    const auto* values = reinterpret_cast<const float*>(block);
    for (uint64_t i = 0; i < elements; ++i) weights[first + i] -= values[i];
  };
  auto done = co_await call_in(world, *fabric.world(), std::move(call));
  if (!done) co_return done;
  CHECK(next == kEach);
  CHECK(weights == std::vector<float>(kEach, 10 - static_cast<float>(fabric.world_size())));
  co_return Result<void>{};
}

TEST_CASE("an update sees every reduced element once, in order, over hosts too") {
  Simulator sim({.seed = 5, .hosts = 2});
  const auto wires = std::make_shared<FlowWires>(sim, NetModel(), std::vector<uint32_t>{0, 0, 1});
  const auto gang = SimGang::make(sim, {.wires = wires, .body = update_once});
  const auto ran = sim.run(run_gang(*gang), 10min);
  REQUIRE_MESSAGE(ran.has_value(), ran.error().text());
}

// Hosts cannot look at each other's boards: the first call tells.
Task<Result<void>> ask_for_others(Fabric& fabric, World& world) {
  const bool odd = fabric.rank() == 1;
  std::vector<uint32_t> both(2);
  std::iota(both.begin(), both.end(), 0U);
  std::string name = odd ? "B" : "A";
  std::string site = odd ? "odd.py:7" : "a.py:1";
  auto group = co_await fabric.group(world, std::move(both), std::move(name), std::move(site));
  if (!group) co_return fail(std::move(group).error());
  Call barrier{};
  auto done = co_await call_in(world, **group, std::move(barrier));
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().code() == Code::invalid);
  CHECK(done.error().text().contains("in group A of ranks 0, 1 at a.py:1"));
  CHECK(done.error().text().contains("in group B of ranks 0, 1 at odd.py:7"));
  // And all may join again.
  auto joined = co_await fabric.join(world, 60s);
  if (!joined) co_return joined;
  Call again{};
  auto worked = co_await call_in(world, *fabric.world(), std::move(again));
  co_return worked;
}

TEST_CASE("hosts that ask for different groups are told by the first call") {
  Simulator sim({.seed = 5, .hosts = 2});
  const auto wires = std::make_shared<FlowWires>(sim, NetModel(), std::vector<uint32_t>{0, 1});
  const auto gang = SimGang::make(sim, {.wires = wires, .body = ask_for_others});
  const auto ran = sim.run(run_gang(*gang), 10min);
  REQUIRE_MESSAGE(ran.has_value(), ran.error().text());
}

}  // namespace
}  // namespace tutti
