// Ranks of one or several simulated hosts, killed at random moments, again and again: no wrong sum,
// no hang, and the same for the same seed.
#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "fabric/parcel.h"
#include "fabric/plan.h"
#include "fabric/sim/gang.h"

namespace tutti {
namespace {

// What ranks do in these tests: sums, from the round that not all have done.
struct Rounds {
  uint64_t count = 60;
  uint64_t sums = 0;
  bool turns = false;  // also reshards and messages
  bool large = false;

  Task<Result<void>> go_on(Fabric& fabric, World& world) {
    Group& group = *fabric.world();
    uint64_t round = done_[fabric.rank()];
    auto* oldest = reinterpret_cast<std::byte*>(&round);
    Call least{.kind = CallKind::all_reduce,
               .type = DType::i64,
               .op = ReduceOp::min,
               .elements = 1,
               .input = oldest,
               .output = oldest};
    auto agreed = co_await call_in(world, group, std::move(least));
    if (!agreed) co_return agreed;
    for (; round < count; ++round) {
      auto summed = co_await sum(fabric, world, round);
      if (!summed) co_return summed;
      if (turns) {
        auto turned = co_await turn(fabric, world, 1 + round * 2'654'435'761 % 20'000);
        if (!turned) co_return turned;
        auto passed = co_await pass(fabric, world, 1 + round * 40'503 % 9'000);
        if (!passed) co_return passed;
      }
      done_[fabric.rank()] = round + 1;
      const Duration pause((fabric.rank() * 7919 + round * 104'729) % 400'000);
      auto slept = co_await world.clock().sleep(pause);
      if (!slept) co_return slept;
    }
    Call barrier;  // all have done the last one
    auto met = co_await call_in(world, group, std::move(barrier));
    co_return met;
  }

  explicit Rounds(uint32_t ranks, uint64_t rounds) : count(rounds), done_(ranks) {}

 private:
  Task<Result<void>> sum(Fabric& fabric, World& world, uint64_t round) {
    const uint64_t elements = 1 + round * 2'654'435'761 % 20'000;
    std::vector<int64_t> data(elements);
    for (uint64_t i = 0; i < elements; ++i)
      data[i] = static_cast<int64_t>((fabric.rank() + 1) * (i + round));
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    Call call{.kind = CallKind::all_reduce,
              .type = DType::i64,
              .elements = elements,
              .input = bytes,
              .output = bytes};
    auto summed = co_await call_in(world, *fabric.world(), std::move(call));
    if (!summed) co_return summed;
    const uint64_t ranks = fabric.world_size();
    const auto all = static_cast<int64_t>(ranks * (ranks + 1) / 2);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < elements; ++i)
      wrong += data[i] != all * static_cast<int64_t>(i + round);
    REQUIRE(wrong == 0);
    ++sums;
    co_return Result<void>{};
  }

  // A vector over the ranks, then over the ranks in the other order, and every second time over the
  // first half of them; in some simulations first so large that it goes in slices.
  Task<Result<void>> turn(Fabric& fabric, World& world, uint64_t elements) {
    const uint32_t ranks = fabric.world_size();
    const uint32_t rank = fabric.rank();
    const uint64_t size = large && elements == 1 ? 3'000'000 * ranks : elements;
    const uint32_t receivers = elements % 2 == 0 ? ranks / 2 : ranks;
    std::vector<uint32_t> backward(receivers);
    for (uint32_t i = 0; i < receivers; ++i) backward[i] = receivers - 1 - i;
    const Layout from =
        *Layout::make(*Mesh::make({{"x", ranks}}), {.shape = {size}, .shards = {{.axes = {"x"}}}});
    const Layout to = *Layout::make(*Mesh::make({{"x", receivers}}, backward),
                                    {.shape = {size}, .shards = {{.axes = {"x"}}}});
    const Box before = from.box(*from.mesh().place_of(rank));
    const auto place = to.mesh().place_of(rank);
    const Box after = place ? to.box(*place) : Box{.dimensions = 1};
    std::vector<int32_t> held(before.extent[0]);
    std::vector<int32_t> got(after.extent[0]);
    for (uint64_t i = 0; i < held.size(); ++i) held[i] = static_cast<int32_t>(before.begin[0] + i);
    auto plan = Plan::make({{"v", from, to, {DType::i32}}});
    Call reshard{.kind = CallKind::reshard, .plan = std::make_shared<const Plan>(*std::move(plan))};
    reshard.inputs.push_back(reinterpret_cast<std::byte*>(held.data()));
    reshard.outputs.push_back(reinterpret_cast<std::byte*>(got.data()));
    auto done = co_await call_in(world, *fabric.world(), std::move(reshard));
    if (!done) co_return done;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < got.size(); ++i)
      wrong += got[i] != static_cast<int32_t>(after.begin[0] + i);
    REQUIRE(wrong == 0);
    co_return Result<void>{};
  }

  // A message round the ring.
  Task<Result<void>> pass(Fabric& fabric, World& world, uint64_t elements) {
    const uint32_t ranks = fabric.world_size();
    const uint32_t before = (fabric.rank() + ranks - 1) % ranks;
    const std::vector<uint64_t> ours(elements, fabric.rank());
    std::vector<uint64_t> got(elements);
    auto sent = fabric.send({.rank = (fabric.rank() + 1) % ranks,
                             .tag = elements,
                             .bytes = std::as_bytes(std::span(ours))});
    if (!sent) co_return fail(std::move(sent).error());
    auto came = fabric.receive(
        {.rank = before, .tag = elements, .into = std::as_writable_bytes(std::span(got))});
    Result<void> done;
    if (!came) done = fail(std::move(came).error());
    if (done) done = co_await fabric.wait(world, *came, 60s);
    if (done) done = co_await fabric.wait(world, *sent, 60s);
    co_await (*sent)->abandon(world);
    if (came) co_await (*came)->abandon(world);
    if (done) REQUIRE(got == std::vector<uint64_t>(elements, before));
    co_return done;
  }

  std::vector<uint64_t> done_;  // by rank
};

struct Outcome {
  uint64_t sums;
  uint64_t losses;
  int64_t virtual_ns;
  bool operator==(const Outcome&) const = default;
};

Task<Result<void>> run_gang(SimGang& gang, Simulator& sim, int kills) {
  SimRandom random = sim.random(RandomStream::program);
  gang.start();
  for (int i = 0; i < kills && !gang.over(); ++i) {
    const auto quiet = Duration(static_cast<int64_t>(random.below(5'000'000)));
    CO_TRY_DO(co_await sim.clock().sleep(quiet));
    gang.kill(static_cast<uint32_t>(random.below(gang.size())));
  }
  auto finished = co_await gang.finish();
  co_return finished;
}

std::vector<uint32_t> nodes_of(const std::vector<uint32_t>& on_hosts) {
  std::vector<uint32_t> nodes;
  for (uint32_t host = 0; host < on_hosts.size(); ++host)
    nodes.insert(nodes.end(), on_hosts[host], host);
  return nodes;
}

Outcome simulate(uint64_t seed, const std::vector<uint32_t>& on_hosts, uint64_t rounds, int kills) {
  Simulator sim({.seed = seed, .hosts = static_cast<uint32_t>(on_hosts.size())});
  Rounds work(std::accumulate(on_hosts.begin(), on_hosts.end(), 0U), rounds);
  work.turns = true;
  work.large = seed % 50 == 1 && on_hosts.size() == 1;
  const auto gang = SimGang::make(
      sim, {.wires = std::make_shared<FlowWires>(sim, NetModel(), nodes_of(on_hosts)),
            .body = [&](Fabric& fabric, World& world) { return work.go_on(fabric, world); }});
  const auto ran = sim.run(run_gang(*gang, sim, kills), 10min);
  REQUIRE_MESSAGE(ran.has_value(), ran.error().text());
  return {work.sums, gang->losses(), sim.now_ns()};
}

TEST_CASE("whoever is killed, sums are right and nobody waits for ever, in simulation") {
  uint64_t losses = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    const std::vector<uint32_t> ranks{static_cast<uint32_t>(2 + seed % 5)};
    const Outcome outcome = simulate(seed, ranks, 60, 6);
    losses += outcome.losses;
    if (seed % 25 == 0) CHECK(simulate(seed, ranks, 60, 6) == outcome);
  }
  CHECK(losses > 500);
}

TEST_CASE("the same over several hosts") {
  const std::vector<uint32_t> shapes[] = {{1, 1}, {2, 2}, {3, 1, 2}, {2, 2, 2, 2}, {1, 1, 1, 1, 1}};
  uint64_t losses = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    const auto& shape = shapes[seed % std::size(shapes)];
    const Outcome outcome = simulate(seed, shape, 30, 5);
    losses += outcome.losses;
    if (seed % 20 == 0) CHECK(simulate(seed, shape, 30, 5) == outcome);
  }
  CHECK(losses > 300);
}

}  // namespace
}  // namespace tutti
