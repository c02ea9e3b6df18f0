// Ranks of several hosts that measure how their calls are best done.
#include <doctest/doctest.h>

#include "fabric/sim/gang.h"

namespace tutti {
namespace {

// What a rank of several simulated hosts came to.
struct Seen {
  TuningWords words{};
  double sum = 0;
};

Task<Result<void>> sum_over_hosts(Fabric& fabric, World& world, std::vector<Seen>& seen) {
  Seen& mine = seen[fabric.rank()];
  for (const uint64_t elements : {10UL, 300'000UL, 70'001UL}) {
    std::vector<float> data(elements, static_cast<float>(fabric.rank()) + 0.5F);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    Call call{.kind = CallKind::all_reduce, .elements = elements, .input = bytes, .output = bytes};
    CO_TRY_DO(co_await call_in(world, *fabric.world(), std::move(call)));
    for (const float value : data) mine.sum += static_cast<double>(value);
  }
  mine.words = fabric.tuning().words();
  co_return Result<void>{};
}

Task<Result<void>> run_gang(SimGang& gang) {
  gang.start();
  auto finished = co_await gang.finish();
  co_return finished;
}

std::vector<Seen> simulated(TuneWhen when, uint64_t seed) {
  Simulator sim({.seed = seed, .hosts = 3});
  std::vector<Seen> seen(6);
  const std::vector<uint32_t> nodes = {0, 0, 1, 1, 2, 2};
  const auto gang = SimGang::make(
      sim,
      {.wires = std::make_shared<FlowWires>(sim, NetModel(), nodes),
       .body = [&](Fabric& fabric, World& world) { return sum_over_hosts(fabric, world, seen); },
       .cores = 2,
       .tune = when});
  const auto ran = sim.run(run_gang(*gang), 10min);
  REQUIRE_MESSAGE(ran.has_value(), ran.error().text());
  return seen;
}

TEST_CASE("ranks of several hosts measure together, agree, and get the same sums") {
  const auto plain = simulated(TuneWhen::never, 5);
  for (const TuneWhen when : {TuneWhen::lazily, TuneWhen::now}) {
    const auto once = simulated(when, 5);
    const auto again = simulated(when, 5);
    for (size_t rank = 0; rank < once.size(); ++rank) {
      CHECK(once[rank].words == once[0].words);
      CHECK(once[rank].words == again[rank].words);  // the simulated clock is the only one
      CHECK(once[rank].sum == plain[rank].sum);
      CHECK(Tuning::of(once[rank].words)->origin == TuningOrigin::measured);
    }
  }
}

}  // namespace
}  // namespace tutti
