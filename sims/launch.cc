// Jobs on a cluster, and what befalls it meanwhile. What must hold, whatever happens: every job
// ends in one state, no process runs twice in one epoch, nothing runs without an owner in the end,
// and the tree is whole again.
#include "sims/cluster_stage.h"
#include "sims/scenarios.h"

namespace tutti::sims {
namespace {

constexpr Duration kSettling = 30s;
constexpr Duration kPatience = 5min;

// Narrow trees are deep, and have more to heal.
uint32_t fan_out_of(const Simulator& sim) {
  constexpr std::array<uint32_t, 3> kFanOuts = {2, 5, kUsualFanOut};
  return sim.hosts() > 1000 ? kUsualFanOut : kFanOuts[sim.options().seed % kFanOuts.size()];
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  const auto stage =
      std::make_shared<ClusterStage>(sim, StageOptions{.fan_out = fan_out_of(sim)});
  stage->start();
  const bool calm = sim.options().faults.name == "none";
  CO_TRY_DO(co_await sim.clock().sleep(2s));
  SimRandom random = sim.random(RandomStream::program);
  const uint32_t slots = (sim.hosts() - 1) * 8;
  for (int i = 0; i < 6; ++i) {
    const auto count = static_cast<uint32_t>(1 + random.below(std::max(1U, slots / 4)));
    stage->submit(gang_job(count, Duration(static_cast<int64_t>(random.below(5'000'000'000)))));
  }
  if (!calm) CO_TRY_DO(co_await suffer(sim, length));
  CO_TRY_DO(co_await stage->all_over(kPatience));
  if (sim.failure()) co_return {};
  CO_TRY_DO(co_await sim.clock().sleep(calm ? 3s : kSettling));
  stage->check_end();
  co_return {};
}

}  // namespace

const Scenario kLaunch = {"launch", "jobs on a cluster under the plan's faults", 20, 2, 20s, run};

}  // namespace tutti::sims
