// Jobs whose processes end at once, one after the other over all hosts, and how long each takes
// from its submission to its end: what bench/bench_model.py compares with real agents.
#include <algorithm>

#include "sims/cluster_stage.h"
#include "sims/scenarios.h"

namespace tutti::sims {
namespace {

constexpr Duration kBoot = 2s;
constexpr Duration kSettling = 30s;
constexpr Duration kPatience = 5min;
constexpr Duration kPause = 300ms;
constexpr uint32_t kSlots = 8;
constexpr int kJobs = 15;

Task<Result<void>> run(Simulator& sim, Duration length) {
  const auto stage =
      std::make_shared<ClusterStage>(sim, StageOptions{.slots = kSlots, .warm_keepers = 1});
  stage->start();
  CO_TRY_DO(co_await sim.clock().sleep(kBoot));
  if (sim.options().faults.name != "none") CO_TRY_DO(co_await suffer(sim, length));
  std::vector<double> times;
  for (int i = 0; i < kJobs && !sim.failure(); ++i) {
    const SubmittedJob& job = stage->submit(gang_job(kSlots * (sim.hosts() - 1), 0s));
    CO_TRY_DO(co_await stage->all_over(kPatience));
    times.push_back(static_cast<double>(job.over_at_ns - job.submitted_at_ns) * 1e-9);
    CO_TRY_DO(co_await sim.clock().sleep(kPause));
  }
  if (sim.failure()) co_return {};
  std::ranges::sort(times);
  sim.figure("processes", kSlots * (sim.hosts() - 1));
  sim.figure("turnaround_s", times[times.size() / 2]);
  CO_TRY_DO(co_await sim.clock().sleep(kSettling));
  stage->check_end();
  co_return {};
}

}  // namespace

const Scenario kTurnaround = {
    "turnaround", "jobs that end at once, and how long each takes", 5, 2, 20s, run};

}  // namespace tutti::sims
