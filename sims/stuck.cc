// A process that cannot be ended, as one that waits for a dead disk. Its job ends without it; while
// it is there its slots are given to nobody, and when it is gone everything is as before.
#include <csignal>

#include "sims/cluster_stage.h"
#include "sims/scenarios.h"
#include "world/sim/process_table.h"

namespace tutti::sims {
namespace {

constexpr Duration kBoot = 2s;
constexpr Duration kPause = 1s;
constexpr Duration kSettling = 60s;
constexpr Duration kPatience = 5min;
constexpr uint32_t kSlots = 8;
// Longer than a host takes to find out: grace, patience with the process, patience of the keeper.
constexpr Duration kStuckAtLeast = 40s;

std::vector<pid_t> workers_on(SimHost& host) {
  std::vector<pid_t> workers;
  if (!host.up()) return workers;
  for (const pid_t pid : host.process_table().descendants(kFirstPid, {}))
    if (host.process_table().name_of(pid) == "worker") workers.push_back(pid);
  return workers;
}

Task<Result<void>> kill_until_over(ClusterStage& stage, const SubmittedJob& job) {
  cluster::KillRequest request;
  request.set_job(job.id);
  request.set_grace_ns(-1);
  while (!job.final_state) {
    (void)co_await stage.kill(request);
    CO_TRY_DO(co_await stage.sim().clock().sleep(kPause));
  }
  co_return {};
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  const auto stage = std::make_shared<ClusterStage>(sim, StageOptions{.slots = kSlots});
  stage->start();
  const bool calm = sim.options().faults.name == "none";
  CO_TRY_DO(co_await sim.clock().sleep(kBoot));
  SimRandom random = sim.random(RandomStream::program);
  SubmittedJob& job = stage->submit(gang_job(3, 1h));
  while (job.running_at_ns == 0) CO_TRY_DO(co_await sim.clock().sleep(kPause));
  uint32_t where = 1;
  while (where + 1 < sim.hosts() && workers_on(sim.host(where)).size() < 2) ++where;
  const std::vector<pid_t> workers = workers_on(sim.host(where));
  if (!sim.check(workers.size() >= 2, "no host has two workers")) co_return {};
  sim.host(where).process_table().set_stuck(workers[0], true);
  // Either the job is killed, or it would start anew and finds its place taken.
  const bool sibling_dies = random.below(2) == 0;
  if (sibling_dies) (void)sim.host(where).process_table().signal(workers[1], SIGKILL);
  if (!calm) CO_TRY_DO(co_await suffer(sim, length));
  CO_TRY_DO(co_await sim.clock().sleep(sibling_dies ? kStuckAtLeast : 0s));
  if (calm && sibling_dies)
    sim.check(job.final_state == cluster::FAILED, "it was started beside what is stuck: {}",
              stage->describe(job));
  Scope killing;
  killing.spawn(kill_until_over(*stage, job));
  CO_TRY_DO(co_await stage->whole_again());
  CO_TRY_DO(co_await stage->all_over(kPatience));
  killing.cancel();
  (void)co_await killing.join();
  if (sim.failure()) co_return {};
  if (calm) {
    const uint32_t free = stage->head()->placement().free(where);
    sim.check(free + 3 == kSlots, "{} slots of host {} are free while one is stuck", free, where);
    auto info = stage->head()->info(job.id);
    sim.check(info && info->leftovers_size() == 1, "what is stuck is not told");
    CO_TRY_DO(co_await sim.clock().sleep(Duration(random.below(to_ns(kStuckAtLeast)))));
    sim.check(stage->head()->placement().free(where) == free, "slots were given back too early");
  }
  if (sim.host(where).up()) sim.host(where).process_table().set_stuck(workers[0], false);
  CO_TRY_DO(co_await sim.clock().sleep(kSettling));
  stage->check_end();
  co_return {};
}

}  // namespace

const Scenario kStuck = {"stuck", "a process of a job cannot be ended", 6, 2, 10s, run};

}  // namespace tutti::sims
