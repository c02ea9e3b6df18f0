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
// Finer than any step of a launch.
constexpr Duration kLookPause = 20us;
constexpr Duration kRehearsalPatience = 5s;
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
  bool submits = false;   // the jobs too, when it is time
};

void submit_some(ClusterStage& stage, SimRandom& random) {
  const uint32_t slots = (stage.sim().hosts() - 1) * kSlots;
  for (int i = 0; i < 6; ++i) {
    const auto count = static_cast<uint32_t>(1 + random.below(std::max(1U, slots / 4)));
    stage.submit(gang_job(count, up_to(random, 5s)));
  }
}

Task<Result<void>> run_play(Simulator& sim, Duration length, Play play) {
  const auto stage = std::make_shared<ClusterStage>(
      sim,
      StageOptions{.fan_out = fan_out_of(sim), .slots = kSlots, .head_log_bytes = kHeadLogBytes});
  stage->start();
  const bool calm = sim.options().faults.name == "none";
  CO_TRY_DO(co_await sim.clock().sleep(kBoot));
  SimRandom random = sim.random(RandomStream::program);
  if (!play.submits) submit_some(*stage, random);
  Scope troubles;
  if (play.trouble != nullptr) troubles.spawn(play.trouble(*stage, random));
  if (!calm) CO_TRY_DO(co_await suffer(sim, length));
  CO_TRY_DO(co_await troubles.join());
  CO_TRY_DO(co_await stage->whole_again());
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

Task<Result<void>> die_at(Simulator& sim, uint32_t host, Duration after, Duration lasts) {
  CO_TRY_DO(co_await sim.clock().sleep(after));
  sim.crash(host);
  CO_TRY_DO(co_await sim.clock().sleep(lasts));
  sim.reboot(host);
  co_return {};
}

Task<Result<void>> crash_for(Simulator& sim, uint32_t host, Duration lasts) {
  return die_at(sim, host, 0s, lasts);
}

// Until the head is asked to start it.
Task<Result<void>> until_submitted(Simulator& sim, const SubmittedJob& job) {
  while (job.submitted_at_ns == 0) CO_TRY_DO(co_await sim.clock().sleep(kLookPause));
  co_return {};
}

// A launch with nothing in its way, to know what the next one is like.
struct Launch {
  uint64_t steps = 0;  // of the head: packets and writes, from the request until it runs
  Duration takes{};
};
Task<Result<Launch>> rehearse(ClusterStage& stage, job::Spec spec) {
  Simulator& sim = stage.sim();
  const SubmittedJob& job = stage.submit(std::move(spec));
  CO_TRY_DO(co_await until_submitted(sim, job));
  sim.count_steps(kHead);
  const Instant patience = sim.clock().now() + kRehearsalPatience;
  while (job.running_at_ns == 0 && !job.final_state && sim.clock().now() < patience)
    CO_TRY_DO(co_await sim.clock().sleep(kLookPause));
  co_return Launch{sim.steps(), Duration(sim.now_ns() - job.submitted_at_ns)};
}

// One host in a hundred dies while everything starts.
Task<Result<void>> deaths(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  const uint32_t slots = (sim.hosts() - 1) * kSlots;
  auto launch = co_await rehearse(stage, gang_job(std::max(1U, slots / 4), 0s));
  if (!launch) co_return fail(launch.error());
  const SubmittedJob& job = stage.submit(gang_job(std::max(1U, slots / 2), up_to(random, 5s)));
  submit_some(stage, random);
  CO_TRY_DO(co_await until_submitted(sim, job));
  Scope dying;
  for (uint32_t i = 0; i < std::max(1U, sim.hosts() / 100); ++i)
    dying.spawn(
        die_at(sim, some_host(sim, random), up_to(random, launch->takes), 2s + up_to(random, 10s)));
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
  const uint32_t slots = (sim.hosts() - 1) * kSlots;
  const job::Spec spec = gang_job(std::max(1U, slots / 4), 1s);
  // The first starts keepers that the next ones find.
  auto first = co_await rehearse(stage, spec);
  if (!first) co_return fail(first.error());
  auto launch = co_await rehearse(stage, spec);
  if (!launch) co_return fail(launch.error());
  const uint64_t drawn = 1 + random.below(std::max<uint64_t>(1, launch->steps));
  const auto step = static_cast<uint64_t>(sim.setting("step", static_cast<double>(drawn)));
  const SubmittedJob& job = stage.submit(spec);
  CO_TRY_DO(co_await until_submitted(sim, job));
  const uint32_t boots = sim.host(kHead).boots();
  sim.count_steps(kHead, step);
  const Instant patience = sim.clock().now() + kRehearsalPatience;
  while (sim.host(kHead).up() && sim.host(kHead).boots() == boots && sim.clock().now() < patience &&
         (step != 0 || job.running_at_ns == 0))
    CO_TRY_DO(co_await sim.clock().sleep(kLookPause));
  // Without a crash, how many there are to choose from.
  sim.figure("launch_steps", static_cast<double>(step == 0 ? sim.steps() : launch->steps));
  sim.count_steps(kHead);
  sim.figure("crashed_while_launching", job.running_at_ns == 0 ? 1 : 0);
  submit_some(stage, random);
  CO_TRY_DO(co_await sim.clock().sleep(100ms + up_to(random, 5s)));
  sim.reboot(kHead);
  co_return {};
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

// Upgrades: agents say that they will be back, and stay away far longer than the dead may.
Task<Result<void>> agent_leaves(ClusterStage& stage, SimRandom& random) {
  Simulator& sim = stage.sim();
  Scope leaving;
  for (int i = 0; i < 8; ++i) {
    CO_TRY_DO(co_await sim.clock().sleep(up_to(random, 500ms)));
    const uint32_t host = some_host(sim, random);
    leaving.spawn(stage.leave(host, 2s + up_to(random, 20s)));
  }
  co_return co_await leaving.join();
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

template <Trouble kTrouble, bool kHarmless, bool kSubmits = false>
Task<Result<void>> run(Simulator& sim, Duration length) {
  return run_play(sim, length, {kTrouble, kHarmless, kSubmits});
}

}  // namespace

const Scenario kLaunch = {
    "launch", "jobs on a cluster under the plan's faults", 20, 2, 20s, run<nullptr, true>};
const Scenario kLaunchDeaths = {"launch-deaths",         "hosts die while jobs start", 200, 3, 20s,
                                run<deaths, false, true>};
const Scenario kRackLoss = {"rack-loss",          "a quarter of the hosts dies at once", 20, 3, 20s,
                            run<rack_loss, false>};
const Scenario kPartition = {"partition",          "the cluster falls in two and heals", 20, 3, 20s,
                             run<partition, false>};
const Scenario kHeadCrash = {"head-crash", "the head dies at some step of a launch",
                             20,           2,
                             20s,          run<head_crash, true, true>};
const Scenario kHeadCrashes = {"head-crashes",         "the head dies again and again", 20, 2, 20s,
                               run<head_crashes, true>};
const Scenario kCoordinatorLoss = {
    "coordinator-loss", "a coordinator's host dies", 20, 3, 20s, run<coordinator_loss, false>};
const Scenario kAgentRestarts = {"agent-restarts",         "agents die and come back", 20, 2, 20s,
                                 run<agent_restarts, true>};
const Scenario kAgentLeaves = {
    "agent-leaves",         "agents are away for longer, as they said", 20, 2, 20s,
    run<agent_leaves, true>};
const Scenario kSlowHosts = {"slow-hosts",         "some hosts are many times slower", 20, 2, 20s,
                             run<slow_hosts, true>};
const Scenario kReplays = {"replays",          "what was said is said again", 20, 3, 20s,
                           run<replays, false>};
const Scenario kThunderingRestart = {
    "thundering-restart", "all agents die at once", 20, 2, 20s, run<thundering_restart, true>};

}  // namespace tutti::sims
