#include "sims/cluster_stage.h"

#include <charconv>
#include <csignal>

#include "cluster/control_pages.h"
#include "cluster/exchange_wire.h"
#include "cluster/job_defaults.h"
#include "cluster/job_layout.h"
#include "cluster/keeper.h"
#include "sims/impostor.h"
#include "sims/spare_program.h"
#include "world/sim/process.h"
#include "world/sim/process_table.h"

namespace tutti::sims {
namespace {

constexpr Duration kRespawnPause = 100ms;
constexpr Duration kClientPause = 200ms;
constexpr Duration kRestart = 5s;
constexpr Duration kKillPatience = 100ms;
constexpr Duration kJoinLook = 20ms;
constexpr uint32_t kMostHostsWithLedger = 20'000;  // beyond it, lives are only counted

uint64_t number_of(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Life life_of(const SimProcess& process) {
  return {number_of(process.variable("TUTTI_JOB")),
          static_cast<uint32_t>(number_of(process.variable("TUTTI_PROCESS"))),
          number_of(process.variable("TUTTI_EPOCH"))};
}

}  // namespace

// Stands in the ledger while the worker lives, however it ends.
class ClusterStage::Worker {
 public:
  Worker(ClusterStage& stage, SimProcess& process, Life life)
      : stage_(stage), host_(process.host()), life_(life) {
    ++stage_.lives_;
    if (!stage_.keep_lives_) return;
    stage_.exits_.began(life_, host_.index(), host_.boots());
    stage_.alive_.insert(life_);
    const uint32_t here = ++stage_.workers_[host_.index()];
    stage_.sim_.check(here <= stage_.options_.slots, "host {} has {} slots and runs {} processes",
                      host_.index(), stage_.options_.slots, here);
    uint64_t& newest = stage_.newest_[{life_.job, life_.process}];
    const Life old{life_.job, life_.process, std::exchange(newest, std::max(newest, life_.epoch))};
    if (old.epoch == 0 || old.epoch >= life_.epoch) return;
    std::string exchange(process.variable(kExchangeVariable));
    host_.scope().spawn(publish_from_old_epoch(host_, old, std::move(exchange)));
  }
  ~Worker() {
    if (!stage_.keep_lives_) return;
    const ExitLedger::End end{
        .code = code_.value_or(0), .killed = !code_.has_value(), .with_host = !host_.up()};
    stage_.exits_.ended(life_, end, stage_.sim_.now_ns());
    --stage_.workers_[host_.index()];
    stage_.joining_.erase(life_);
    stage_.alive_.erase(stage_.alive_.find(life_));
  }
  void returns(int code) { code_ = code; }

 private:
  ClusterStage& stage_;
  SimHost& host_;
  Life life_;
  std::optional<int> code_;
};

// A process that may be killed, for as long as it is there.
class ClusterStage::Listed {
 public:
  Listed(ClusterStage& stage, SimProcess& process)
      : stage_(stage), place_(process.host().index(), process.pid()) {
    if (stage_.keep_lives_) stage_.processes_.insert(place_);
  }
  ~Listed() {
    if (stage_.keep_lives_) stage_.processes_.erase(place_);
  }

 private:
  ClusterStage& stage_;
  std::pair<uint32_t, pid_t> place_;
};

void ClusterStage::kill_some_process(SimRandom& random) {
  if (processes_.empty()) return;
  auto victim = processes_.begin();
  std::advance(victim, random.below(processes_.size()));
  (void)sim_.host(victim->first).process_table().signal(victim->second, SIGKILL);
}

ClusterStage::ClusterStage(Simulator& sim, StageOptions options)
    : sim_(sim),
      options_(options),
      roster_(sim.hosts(), options.fan_out),
      agents_(sim.hosts()),
      agent_pids_(sim.hosts()),
      workers_(sim.hosts()),
      exits_([this](const std::string& what) { sim_.check(false, "{}", what); }),
      keep_lives_(sim.hosts() <= kMostHostsWithLedger) {
  auto agents = std::make_shared<AgentOptions>();
  agents->folder = "/agent";
  agents->slots = options_.slots;
  agents->keeper.command = {"keeper"};
  agents->warm_keepers = options_.warm_keepers;
  agents->announce = false;
  if (keep_lives_) agents->exits = &exits_;
  agents->address_of = [this](NodeId node) { return roster_.address(node).text(); };
  agent_options_ = std::move(agents);
}

void ClusterStage::set_worker(std::string name, Program program) {
  const auto stage = shared_from_this();
  sim_.set_process(std::move(name), [stage, program = std::move(program)](SimProcess& process) {
    return stage->live(process, life_of(process), program);
  });
}

void ClusterStage::start() {
  set_programs();
  sim_.start_all();
}

Task<Result<void>> ClusterStage::start_over(Duration time) {
  constexpr uint32_t kAtOnce = 1000;
  set_programs();
  for (uint32_t host = 0; host < sim_.hosts(); ++host) {
    sim_.start(host);
    if (host % kAtOnce != 0) continue;
    const auto pause = Duration(to_ns(time) * kAtOnce / sim_.hosts());
    CO_TRY_DO(co_await sim_.clock().sleep(pause));
  }
  co_return {};
}

void ClusterStage::set_programs() {
  const auto stage = shared_from_this();
  sim_.set_process("keeper", keeper_program);
  sim_.set_process("agent", [stage](SimProcess& process) { return stage->agent_program(process); });
  sim_.set_process("worker",
                   [stage](SimProcess& process) { return stage->live_and_work(process); });
  sim_.set_process("python",
                   [stage](SimProcess& process) { return stage->python_program(process); });
  sim_.set_program([stage](SimHost& host) {
    if (host.index() == 0) return stage->keep_head(host);
    return stage->options_.agents_restart ? stage->run_init(host) : stage->run_agent(host, host);
  });
}

Result<Task<Result<void>>> ClusterStage::start_keeping(SimProcess& process) {
  TRY(auto controller, process.take_stream(kKeeperControllerNumber));
  KeeperOptions options;
  const std::vector<std::string> arguments = process.arguments();
  for (size_t i = 1; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--linger") options.linger = arguments[i + 1];
    if (arguments[i] == "--group") options.group = arguments[i + 1];
  }
  return keep(process, std::move(options), std::move(controller));
}

Task<int> ClusterStage::keeper_program(SimProcess& process) {
  auto keeping = start_keeping(process);
  if (!keeping) co_return 2;
  auto kept = co_await std::move(*keeping);
  co_return kept ? 0 : 1;
}

Task<int> ClusterStage::live(SimProcess& process, Life life, const Program& program) {
  const Listed listed(*this, process);
  Worker worker(*this, process, life);
  const int code = co_await program(process);
  if (!process.dying()) worker.returns(code);
  co_return code;
}

// A worker, or a spare that becomes one.
Task<int> ClusterStage::python_program(SimProcess& process) {
  const Listed listed(*this, process);
  if (process.variable(kSpareVariable).empty()) {
    std::string offset = process.variable(TUTTI_CONTROL_OFFSET_VARIABLE);
    co_return co_await work_and_join(process, life_of(process), std::move(offset));
  }
  const std::string assignment = co_await wait_for_rank(process);
  if (assignment.empty()) co_return 9;
  const Life life{number_of(process.variable("TUTTI_JOB")),
                  static_cast<uint32_t>(number_of(setting_of(assignment, "TUTTI_PROCESS"))),
                  number_of(setting_of(assignment, "TUTTI_EPOCH"))};
  std::string offset = setting_of(assignment, TUTTI_CONTROL_OFFSET_VARIABLE);
  co_return co_await work_and_join(process, life, std::move(offset));
}

// As a rank of a gang does: it is done when all are, in the same epoch. Who died meanwhile is
// waited for, and an epoch that is over is followed by another. A host that was given more than
// twice the processes it began with has no pages for the rest of them: those only work.
Task<int> ClusterStage::work_and_join(SimProcess& process, Life life, std::string page_offset) {
  Worker worker(*this, process, life);
  const auto arena =
      process.take_handle(static_cast<int>(number_of(process.variable(TUTTI_CONTROL_FD_VARIABLE))));
  if (!arena) co_return 1;
  const auto pages = ControlPages::open(process, *arena);
  if (!pages) co_return 1;
  const int code = co_await work(process);
  while (!process.dying() && !page_offset.empty()) {
    const tutti_control_page* page = (*pages)->find(number_of(page_offset));
    const uint64_t epoch = tutti_control_epoch(page);
    joining_[life] = {epoch, tutti_control_aborted(page, epoch) != 0};
    (*pages)->rest();
    if (all_join(life)) break;
    auto slept = co_await process.clock().sleep(kJoinLook);
    if (!slept) co_return 1;
  }
  if (!process.dying()) worker.returns(code);
  co_return code;
}

bool ClusterStage::all_join(const Life& life) const {
  const uint64_t epoch = joining_.at(life).epoch;
  return std::ranges::all_of(alive_, [&](const Life& other) {
    // One that lives elsewhere anew is to end, on a host that has not heard of it yet.
    const bool replaced = other.epoch < newest_.at({other.job, other.process});
    if (other.job != life.job || replaced) return true;
    const auto joins = joining_.find(other);
    return joins != joining_.end() && joins->second.epoch == epoch && !joins->second.over;
  });
}

// A worker's life, in one frame: there may be a million of them.
Task<int> ClusterStage::live_and_work(SimProcess& process) {
  const Listed listed(*this, process);
  Worker worker(*this, process, life_of(process));
  const Duration work(static_cast<int64_t>(number_of(process.variable("WORK_NS"))));
  auto slept = co_await process.clock().sleep(work);
  const int code = slept ? static_cast<int>(number_of(process.variable("EXIT_CODE"))) : 1;
  if (!process.dying()) worker.returns(code);
  co_return code;
}

Task<int> ClusterStage::work(SimProcess& process) {
  const Duration work(static_cast<int64_t>(number_of(process.variable("WORK_NS"))));
  auto slept = co_await process.clock().sleep(work);
  if (!slept) co_return 1;
  co_return static_cast<int>(number_of(process.variable("EXIT_CODE")));
}

Task<int> ClusterStage::agent_program(SimProcess& process) {
  auto ran = co_await run_agent(process, process.host());
  if (!ran) sim_.note(process.host().index(), "agent: " + ran.error().text());
  co_return ran ? 0 : 1;
}

Task<Result<void>> ClusterStage::run_agent(World& world, SimHost& host) {
  const std::unique_ptr<wire::Seals> seals = roster_.seals(host);
  const std::unique_ptr<Agent> agent = make_agent(world, host.index(), *seals);
  // A crash destroys the frame without running it: the place must be freed then too.
  struct Standing {
    Agent*& place;
    ~Standing() { place = nullptr; }
  };
  const Standing standing{agents_[host.index()]};
  agents_[host.index()] = agent.get();
  exits_.new_agent(host.index());
  co_return co_await agent->run();
}

std::unique_ptr<Agent> ClusterStage::make_agent(World& world, uint32_t host, wire::Seals& seals) {
  AgentPlace place{.tree = roster_.options(host), .listen = roster_.address(host), .api = {}};
  return std::make_unique<Agent>(world, seals, agent_options_, std::move(place));
}

Task<Result<void>> ClusterStage::run_init(SimHost& host) {
  while (true) {
    auto process = host.processes().spawn({.arguments = {"agent"}});
    if (!process) co_return fail(std::move(process).error());
    agent_pids_[host.index()] = (*process)->pid();
    auto exit = co_await (*process)->wait();
    if (!exit) co_return fail(std::move(exit).error());
    const auto away = away_until_.find(host.index());
    Duration pause = kRespawnPause;
    if (away != away_until_.end()) pause = std::max(pause, away->second - sim_.clock().now());
    auto slept = co_await host.clock().sleep(pause);
    if (!slept) co_return slept;
  }
}

Task<Result<void>> ClusterStage::run_head(SimHost& host) {
  const std::unique_ptr<wire::Seals> seals = roster_.seals(host);
  HeadOptions options;
  options.tree = roster_.options(kHead);
  options.listen = roster_.address(kHead);
  options.folder = "/head";
  options.roster = sim_.hosts() - 1;
  options.roster_slots = options_.slots;
  options.log_bytes = options_.head_log_bytes;
  options.address_of = [this](NodeId node) { return roster_.address(node).text(); };
  Head head(host, *seals, std::move(options));
  struct Standing {
    Head*& place;
    ~Standing() { place = nullptr; }
  };
  Scope strands;
  const Standing standing{head_};
  head_ = &head;
  head_strands_ = &strands;
  strands.spawn(head.run());
  strands.spawn(client(host, head));
  co_return co_await strands.join();
}

Task<Result<void>> ClusterStage::keep_head(SimHost& host) {
  while (true) {
    auto ran = co_await run_head(host);
    if (!ran) sim_.note(0, "head: " + ran.error().text());
    auto slept = co_await host.clock().sleep(kRespawnPause);
    if (!slept) co_return slept;
  }
}

SubmittedJob& ClusterStage::submit(job::Spec spec) {
  auto job = std::make_unique<SubmittedJob>();
  job->key = fmt::format("job {}", jobs_.size());
  job->spec = std::move(spec);
  jobs_.push_back(std::move(job));
  return *jobs_.back();
}

uint64_t ClusterStage::submitted_processes() const {
  uint64_t processes = 0;
  for (const auto& job : jobs_) processes += JobNumbers(job->spec).size();
  return processes;
}

Task<Result<void>> ClusterStage::client(SimHost& host, Head& head) {
  Scope following;
  size_t next = 0;
  while (true) {
    for (; next < jobs_.size(); ++next) following.spawn(follow(host, head, *jobs_[next]));
    auto slept = co_await host.clock().sleep(kClientPause);
    if (!slept) break;
  }
  co_return co_await following.join();
}

Task<void> ClusterStage::follow(SimHost& host, Head& head, SubmittedJob& job) {
  if (job.submitted_at_ns == 0) job.submitted_at_ns = sim_.now_ns();
  cluster::SubmitRequest request;
  *request.mutable_spec() = job.spec;
  request.set_key(job.key);
  while (!head.ready()) {
    auto slept = co_await host.clock().sleep(10ms);
    if (!slept) co_return;
  }
  auto id = co_await head.submit(std::move(request), "sim");
  if (!id) {
    if (id.error().code() != Code::cancelled)
      sim_.note(0, fmt::format("submit: {}", id.error().text()));
    co_return;
  }
  sim_.check(job.id == 0 || job.id == *id, "{} was submitted as job {} and as {}", job.key, job.id,
             *id);
  job.id = *id;
  cluster::JobState state = cluster::QUEUED;
  uint64_t seen = 0;
  while (state < cluster::SUCCEEDED) {
    auto info = co_await head.change_of(*id, seen);
    if (!info) co_return;
    state = info->state();
    seen = info->changes();
    if (state == cluster::RUNNING && job.running_at_ns == 0) job.running_at_ns = sim_.now_ns();
  }
  if (job.over_at_ns == 0) job.over_at_ns = sim_.now_ns();
  sim_.check(!job.final_state || *job.final_state == state, "job {} ended twice: {} and {}", job.id,
             static_cast<int>(*job.final_state), static_cast<int>(state));
  job.final_state = state;
}

Task<void> ClusterStage::ask_to_kill(Head& head, cluster::KillRequest request,
                                     std::shared_ptr<bool> taken) {
  std::string user = "director";
  auto killed = co_await head.kill(std::move(request), std::move(user));
  *taken = killed.has_value();
}

// Who waits for the head's disk must end with the head.
Task<bool> ClusterStage::kill(cluster::KillRequest request) {
  const auto taken = std::make_shared<bool>(false);
  if (head_ == nullptr || !head_->ready()) co_return false;
  head_strands_->spawn(ask_to_kill(*head_, std::move(request), taken));
  const Instant patience = sim_.clock().now() + kKillPatience;
  while (!*taken && sim_.clock().now() < patience)
    if (!co_await sim_.clock().sleep(1ms)) break;
  co_return *taken;
}

Task<Result<void>> ClusterStage::all_over(Duration patience) {
  const Instant until = sim_.clock().now() + patience;
  const auto over = [&] {
    return std::ranges::all_of(jobs_, [](const auto& job) { return job->final_state.has_value(); });
  };
  while (!over() && sim_.clock().now() < until && !sim_.failure())
    CO_TRY_DO(co_await sim_.clock().sleep(50ms));
  for (const auto& job : jobs_)
    sim_.check(job->final_state.has_value(), "job {} does not end: {}", job->id, describe(*job));
  co_return {};
}

// What everybody believes of a job.
std::string ClusterStage::describe(const SubmittedJob& job) {
  if (head_ == nullptr) return "there is no head";
  auto info = head_->info(job.id);
  if (!info) return info.error().text();
  std::string text = fmt::format("state {} ({}), coordinator {}", static_cast<int>(info->state()),
                                 info->why(), info->coordinator());
  for (const Life& life : alive_)
    if (life.job == job.id) text += describe(life);
  for (uint32_t host = 1; host < sim_.hosts(); ++host) {
    if (agents_[host] == nullptr) {
      text += fmt::format("; host {} has no agent", host);
      continue;
    }
    if (const Coordinator* coordinator = agents_[host]->find_coordinator(job.id))
      text += fmt::format("; host {} coordinates epoch {:x}: {}", host, coordinator->epoch(),
                          coordinator->text());
    if (const HostJob* here = agents_[host]->find_job(job.id))
      text += fmt::format("; host {}: {}", host, here->text());
  }
  return text;
}

std::string ClusterStage::describe(const Life& life) const {
  const auto joins = joining_.find(life);
  if (joins == joining_.end()) return fmt::format("; {} lives", life.process);
  return fmt::format("; {} joins epoch {:x}{}", life.process, joins->second.epoch,
                     joins->second.over ? ", which is over" : "");
}

void ClusterStage::check_end() {
  if (!alive_.empty()) {
    const Life& life = *alive_.begin();
    sim_.check(false, "{} workers have no owner, as process {} of job {} in epoch {:x}",
               alive_.size(), life.process, life.job, life.epoch);
  }
  check_exits();
  if (!sim_.check(head_ != nullptr, "there is no head")) return;
  const RangeSet everyone(0, sim_.hosts() - 1);
  const RangeSet missing = everyone.minus(head_->tree().alive());
  sim_.check(missing.empty(), "the head misses {}", missing.text());
  for (uint32_t host = 1; host < sim_.hosts(); ++host) {
    if (!sim_.check(agents_[host] != nullptr, "host {} has no agent", host)) return;
    for (const auto& [id, job] : agents_[host]->jobs())
      sim_.check(false, "host {} still has job {}: {}", host, id, job->text());
    sim_.check(agents_[host]->coordinators() == 0, "host {} still coordinates", host);
    sim_.check(head_->placement().free(host) == options_.slots, "host {} has {} free slots", host,
               head_->placement().free(host));
  }
}

// Every end was told, and what is said of the jobs is what their processes did.
void ClusterStage::check_exits() {
  if (!keep_lives_) return;
  std::map<uint64_t, int64_t> over_at_ns;
  for (const auto& job : jobs_) over_at_ns[job->id] = job->over_at_ns;
  exits_.check_noted([this](uint32_t host) { return sim_.host(host).boots(); },
                     [&](uint64_t job) { return over_at_ns[job]; });
  for (const auto& job : jobs_) {
    if (job->final_state != cluster::SUCCEEDED) continue;
    const JobNumbers numbers(job->spec);
    for (size_t role = 0; role < numbers.roles(); ++role) {
      const job::Role& about = job->spec.roles(static_cast<int>(role));
      if (about.kind() != job::Role::GANG && about.kind() != job::Role::TASK) continue;
      for (const uint32_t process : numbers.of_role(role).members())
        exits_.check_succeeded(job->id, process);
      if (about.kind() == job::Role::GANG && about.strategy() == job::ONE_FOR_ALL)
        exits_.check_one_life(job->id, numbers.of_role(role));
    }
  }
}

Task<Result<void>> ClusterStage::check_head_remembers() {
  cluster::JobsRequest all;
  all.set_all(true);
  all.set_most(~0U);
  const auto told = [&] {
    cluster::JobsReply reply;
    for (cluster::JobInfo& info : head_->jobs(all)) *reply.add_jobs() = std::move(info);
    return reply.SerializeAsString();
  };
  if (sim_.failure()) co_return {};
  const std::string before = told();
  sim_.crash(kHead);
  sim_.reboot(kHead);
  CO_TRY_DO(co_await sim_.clock().sleep(kRestart));
  if (!sim_.check(head_ != nullptr && head_->ready(), "the head does not come back")) co_return {};
  sim_.check(told() == before, "the head remembers another history");
  co_return {};
}

job::Spec gang_job(uint32_t count, Duration work) {
  job::Spec spec = default_job();
  spec.set_name("gang");
  spec.set_folder("/");
  job::Role role = default_role(job::Role::GANG);
  role.set_name("worker");
  role.set_count(count);
  role.add_command("worker");
  role.add_environment(fmt::format("WORK_NS={}", to_ns(work)));
  *spec.add_roles() = std::move(role);
  return spec;
}

}  // namespace tutti::sims
