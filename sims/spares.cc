// Gangs with spares, whose ranks and spares are killed, and the agents with them: whatever dies in
// a hand-over, no rank runs twice in one epoch, and no spare is left without a job.
#include "sims/cluster_stage.h"
#include "sims/scenarios.h"

namespace tutti::sims {
namespace {

constexpr Duration kBoot = 2s;
constexpr Duration kSettling = 30s;
constexpr Duration kPatience = 5min;
constexpr uint32_t kSlots = 8;

Duration up_to(SimRandom& random, Duration most) {
  return Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(to_ns(most)))));
}

Task<Result<void>> trouble(ClusterStage& stage, SimRandom& random) {
  for (int i = 0; i < 40; ++i) {
    CO_TRY_DO(co_await stage.sim().clock().sleep(up_to(random, 400ms)));
    // Also several at once, or while those before are replaced.
    for (uint64_t more = random.below(4); more != 0; --more) {
      stage.kill_some_process(random);
      const Duration most = random.below(2) == 0 ? 5ms : 60ms;
      CO_TRY_DO(co_await stage.sim().clock().sleep(up_to(random, most)));
    }
    stage.kill_some_process(random);
    if (random.below(3) != 0) continue;
    // While what died is being replaced.
    CO_TRY_DO(co_await stage.sim().clock().sleep(up_to(random, 5ms)));
    stage.kill_agent(static_cast<uint32_t>(1 + random.below(stage.sim().hosts() - 1)));
    if (random.below(2) == 0) stage.kill_some_process(random);
  }
  co_return {};
}

job::Spec job_with_spares(SimRandom& random, uint32_t most) {
  job::Spec spec = gang_job(1 + static_cast<uint32_t>(random.below(most)), 5s + up_to(random, 10s));
  job::Role& role = *spec.mutable_roles(0);
  role.set_command(0, "python");
  role.add_command("worker");
  role.set_spares(1 + static_cast<uint32_t>(random.below(3)));
  role.set_strategy(random.below(2) == 0 ? job::ONE_FOR_ONE : job::ONE_FOR_ALL);
  const bool at_once = random.below(2) == 0;
  for (job::Budget& budget : *role.mutable_budgets()) {
    budget.set_restarts(1000);
    budget.set_delay_ns(at_once ? 0 : to_ns(up_to(random, 100ms)));
    budget.set_longest_delay_ns(to_ns(200ms));
  }
  return spec;
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  const auto stage =
      std::make_shared<ClusterStage>(sim, StageOptions{.fan_out = 2, .slots = kSlots});
  stage->start();
  CO_TRY_DO(co_await sim.clock().sleep(kBoot));
  SimRandom random = sim.random(RandomStream::program);
  for (int i = 0; i < 2; ++i) stage->submit(job_with_spares(random, kSlots));
  const bool calm = sim.options().faults.name == "none";
  CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 5s)));
  Scope troubles;
  troubles.spawn(trouble(*stage, random));
  if (!calm) CO_TRY_DO(co_await suffer(sim, length));
  CO_TRY_DO(co_await troubles.join());
  CO_TRY_DO(co_await stage->whole_again());
  CO_TRY_DO(co_await stage->all_over(kPatience));
  if (sim.failure()) co_return {};
  CO_TRY_DO(co_await sim.clock().sleep(kSettling));
  stage->check_end();
  sim.check(stage->processes() == 0, "{} spares have no owner", stage->processes());
  co_return {};
}

}  // namespace

const Scenario kSpares = {"spares", "ranks, spares and agents are killed", 6, 3, 20s, run};

}  // namespace tutti::sims
