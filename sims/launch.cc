// Jobs on a cluster, and what befalls it meanwhile. What must hold, whatever happens: every job
// ends in one state, no process runs twice in one epoch, nothing runs without an owner in the end,
// and the tree is whole again. Where only the runtime itself was hit, no process may have been
// lost.
#include <array>

#include "sims/cluster_stage.h"
#include "sims/scenarios.h"

namespace tutti::sims {
namespace {

constexpr Duration kBoot = 2s;
constexpr Duration kSettling = 30s;
constexpr Duration kPatience = 5min;
constexpr uint32_t kSlots = 8;
// A few records: the head takes snapshots all the time.
constexpr uint64_t kHeadLogBytes = 1'000;

// Narrow trees are deep, and have more to heal.
uint32_t fan_out_of(const Simulator& sim) {
  constexpr std::array<uint32_t, 3> kFanOuts = {2, 5, kUsualFanOut};
  return sim.hosts() > 1000 ? kUsualFanOut : kFanOuts[sim.options().seed % kFanOuts.size()];
}

Duration up_to(SimRandom& random, Duration most) {
  return Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(to_ns(most)))));
}

uint32_t some_host(const Simulator& sim, SimRandom& random) {
  return 1 + static_cast<uint32_t>(random.below(sim.hosts() - 1));
}

// What happens besides the plan's faults, while jobs are started and run.
using Trouble = Task<Result<void>> (*)(ClusterStage& stage, SimRandom& random);

struct Play {
  Trouble trouble = nullptr;
  bool harmless = false;  // no process may be lost by it
};

Task<Result<void>> run_play(Simulator& sim, Duration length, Play play) {
  const auto stage = std::make_shared<ClusterStage>(
      sim,
      StageOptions{.fan_out = fan_out_of(sim), .slots = kSlots, .head_log_bytes = kHeadLogBytes});
  stage->start();
  const bool calm = sim.options().faults.name == "none";
  CO_TRY_DO(co_await sim.clock().sleep(kBoot));
  SimRandom random = sim.random(RandomStream::program);
  const uint32_t slots = (sim.hosts() - 1) * kSlots;
  for (int i = 0; i < 6; ++i) {
    const auto count = static_cast<uint32_t>(1 + random.below(std::max(1U, slots / 4)));
    stage->submit(gang_job(count, up_to(random, 5s)));
  }
  Scope troubles;
  if (play.trouble != nullptr) troubles.spawn(play.trouble(*stage, random));
  if (!calm) CO_TRY_DO(co_await suffer(sim, length));
  CO_TRY_DO(co_await troubles.join());
  CO_TRY_DO(co_await stage->all_over(kPatience));
  if (sim.failure()) co_return {};
  CO_TRY_DO(co_await sim.clock().sleep(calm && play.trouble == nullptr ? 3s : kSettling));
  stage->check_end();
  CO_TRY_DO(co_await stage->check_head_remembers());
  if (calm && (play.harmless || play.trouble == nullptr))
    sim.check(stage->lives() <= stage->submitted_processes(), "{} processes had {} lives",
              stage->submitted_processes(), stage->lives());
  co_return {};
}

Task<Result<void>> crash_for(Simulator& sim, uint32_t host, Duration lasts) {
  sim.crash(host);
  CO_TRY_DO(co_await sim.clock().sleep(lasts));
  sim.reboot(host);
  co_return {};
}

// One host in a hundred dies while everything starts.
Task<Result<void>> deaths(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  Scope dying;
  for (uint32_t i = 0; i < 1 + sim.hosts() / 100; ++i) {
    CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 500ms)));
    dying.spawn(crash_for(sim, some_host(sim, random), 2s + up_to(random, 10s)));
  }
  co_return co_await dying.join();
}

// Neighbours die at one moment.
Task<Result<void>> rack_loss(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 3s)));
  const uint32_t count = std::max(1U, sim.hosts() / 4);
  const auto first = static_cast<uint32_t>(1 + random.below(sim.hosts() - count));
  Scope dying;
  for (uint32_t host = first; host < first + count; ++host) dying.spawn(crash_for(sim, host, 10s));
  co_return co_await dying.join();
}

// The cluster falls in two, and heals.
Task<Result<void>> partition(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 2s)));
  const uint32_t first = some_host(sim, random);
  const uint64_t cut =
      sim.links().partition(HostSet::range(0, first), HostSet::range(first, sim.hosts()));
  CO_TRY_DO(co_await sim.clock().sleep(500ms + up_to(random, 8s)));
  sim.links().heal(cut);
  co_return {};
}

// At any step of the launch, and for any time.
Task<Result<void>> head_crash(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 300ms)));
  co_return co_await crash_for(sim, kHead, 100ms + up_to(random, 5s));
}

// Asks until the head has said yes, and never again.
Task<Result<void>> kill_once(ClusterStage& stage, const SubmittedJob& job) {
  bool taken = false;
  while (!taken) {
    CO_TRY_DO(co_await stage.sim().clock().sleep(50ms));
    if (job.id == 0) continue;
    cluster::KillRequest request;
    request.set_job(job.id);
    request.set_grace_ns(-1);
    taken = co_await stage.kill(std::move(request));
  }
  co_return {};
}

// Also while hosts come back to it. A job that would go on for ever ends because somebody once
// asked for it.
Task<Result<void>> head_crashes(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  Scope killing;
  killing.spawn(kill_once(stage, stage.submit(gang_job(2, 1h))));
  for (uint64_t crashes = 2 + random.below(4); crashes > 0; --crashes) {
    CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 2s)));
    CO_TRY_DO(co_await crash_for(sim, kHead, up_to(random, 1s)));
  }
  co_return co_await killing.join();
}

Task<Result<void>> coordinator_loss(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  CO_TRY_DO(co_await sim.clock().sleep(200ms + up_to(random, 2s)));
  for (uint32_t host = 1; host < sim.hosts(); ++host)
    if (stage.agent(host) != nullptr && stage.agent(host)->coordinators() != 0)
      co_return co_await crash_for(sim, host, 5s);
  co_return {};
}

Task<Result<void>> agent_restarts(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  for (int i = 0; i < 20; ++i) {
    CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 200ms)));
    stage.kill_agent(some_host(sim, random));
  }
  co_return {};
}

Task<Result<void>> slow_hosts(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  for (uint32_t i = 0; i < 1 + sim.hosts() / 5; ++i)
    sim.set_slow(some_host(sim, random), static_cast<uint32_t>(500 + random.below(4500)));
  CO_TRY_DO(co_await sim.clock().sleep(5s));
  for (uint32_t host = 1; host < sim.hosts(); ++host) sim.set_slow(host, 100);
  co_return {};
}

Task<Result<void>> thundering_restart(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 2s)));
  for (uint32_t host = 1; host < sim.hosts(); ++host) stage.kill_agent(host);
  co_return {};
}

// What coordinators and the head have said so far, and to whom.
using Said = std::vector<std::pair<uint32_t, std::string>>;
constexpr size_t kMostSaid = 500;

void listen_to(Agent& agent, uint32_t host, Said& said) {
  for (const auto& [id, job] : agent.jobs()) {
    if (said.size() >= kMostSaid || job->epoch() == 0) continue;
    cluster::Message directive;
    *directive.mutable_directive() = job->directive();
    said.emplace_back(host, directive.SerializeAsString());
    const Coordinator* coordinator = agent.find_coordinator(id);
    if (coordinator == nullptr) continue;
    cluster::Message appointment;
    *appointment.mutable_appointment() = coordinator->appointment();
    said.emplace_back(host, appointment.SerializeAsString());
  }
}

// Directives and appointments come again, from anybody, while epochs go on and after the jobs' end.
Task<Result<void>> replays(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  Said said;
  for (int i = 0; i < 100; ++i) {
    CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 200ms)));
    for (uint32_t host = 1; host < sim.hosts(); ++host)
      if (Agent* agent = stage.agent(host)) listen_to(*agent, host, said);
    if (i % 10 == 5) stage.kill_some_process(random);
    Agent* sender = stage.agent(some_host(sim, random));
    // One with a job has a tree to send through.
    if (sender == nullptr || sender->jobs().empty() || said.empty()) continue;
    const auto& [host, message] = said[random.below(said.size())];
    sender->tree().send(RangeSet(host), as_bytes(message));
  }
  co_return {};
}

template <Trouble kTrouble, bool kHarmless>
Task<Result<void>> run(Simulator& sim, Duration length) {
  return run_play(sim, length, {kTrouble, kHarmless});
}

}  // namespace

const Scenario kLaunch = {
    "launch", "jobs on a cluster under the plan's faults", 20, 2, 20s, run<nullptr, true>};
const Scenario kLaunchDeaths = {"launch-deaths",   "hosts die while jobs start", 20, 3, 20s,
                                run<deaths, false>};
const Scenario kRackLoss = {"rack-loss",          "a quarter of the hosts dies at once", 20, 3, 20s,
                            run<rack_loss, false>};
const Scenario kPartition = {"partition",          "the cluster falls in two and heals", 20, 3, 20s,
                             run<partition, false>};
const Scenario kHeadCrash = {
    "head-crash", "the head dies at some step of a launch", 20, 2, 20s, run<head_crash, true>};
const Scenario kHeadCrashes = {"head-crashes",         "the head dies again and again", 20, 2, 20s,
                               run<head_crashes, true>};
const Scenario kCoordinatorLoss = {
    "coordinator-loss", "a coordinator's host dies", 20, 3, 20s, run<coordinator_loss, false>};
const Scenario kAgentRestarts = {"agent-restarts",         "agents die and come back", 20, 2, 20s,
                                 run<agent_restarts, true>};
const Scenario kSlowHosts = {"slow-hosts",         "some hosts are many times slower", 20, 2, 20s,
                             run<slow_hosts, true>};
const Scenario kReplays = {"replays",          "what was said is said again", 20, 3, 20s,
                           run<replays, false>};
const Scenario kThunderingRestart = {
    "thundering-restart", "all agents die at once", 20, 2, 20s, run<thundering_restart, true>};

}  // namespace tutti::sims
