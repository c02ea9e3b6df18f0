// One job over the whole cluster, at any size, and what it takes, as bench/bench_scale.py tells it.
//
// All hosts boot, hang themselves into the tree and idle; then a gang takes every slot but those
// of a few spare hosts, one of its hosts dies and is replaced, and everything ends. With `--faults`
// the plan's faults come between boot and launch.
//
// Memory sets the limits: a process with its keeper takes twice what an idle agent does, and
// a host that boots twice as much for a moment. Very many hosts therefore do not boot in the same
// moment, and have one process each. With `launch_only` set to 1 it is over when all have begun.
//
// With `bare` set to 1, hosts only listen, connect to the host above them and read from
// each other: what they take then is the simulated machine's, and the rest of what an idle host
// takes is its agent's.
#include "cluster/job_layout.h"
#include "sims/cluster_stage.h"
#include "sims/scenarios.h"

namespace tutti::sims {
namespace {

constexpr Duration kPatience = 5min;
constexpr Duration kIdle = 5s;  // connections let go of what they needed at first
constexpr Duration kShortIdle = 1s;
constexpr Duration kLook = 10ms;
constexpr uint32_t kManyHosts = 200'000;
constexpr uint32_t kSlots = 8;     // of fewer
constexpr double kBootOver_s = 2;  // so many hosts

// Only then do agents die apart from their hosts.
bool has_faults(const Simulator& sim) { return sim.options().faults.name != "none"; }

uint32_t setting(Simulator& sim, const std::string& name, uint32_t usual) {
  return std::max(1U, static_cast<uint32_t>(sim.setting(name, usual)));
}

// The machine of an idle agent without the agent: a disk, a table of processes, a port at which it
// listens, and the connections of the tree.
class BareHost final : public ConnectionTaker, public ByteTaker {
 public:
  void on_connection(std::unique_ptr<Stream> stream) override {
    stream->serve(*this, *scope_, nullptr);
    streams_.push_back(std::move(stream));
  }
  void on_bytes(Bytes, std::vector<Handle>) override {}
  void on_end(Result<void>) override {}

  Task<Result<void>> run(SimHost& host, const Roster& roster) {
    scope_ = &host.scope();
    CO_TRY_DO(host.processes().become_subreaper());
    (void)co_await host.disk().list("/agent/keepers");
    Address here = roster.address(host.index());
    CO_TRY(listener_, co_await host.network().listen(std::move(here)));
    listener_->serve(*this, host.scope());
    if (host.index() == kHead) co_return {};
    Address above = roster.address(roster.shape().parent(host.index()));
    CO_TRY(auto stream, co_await host.network().connect(std::move(above)));
    on_connection(std::move(stream));
    co_return {};
  }

 private:
  Scope* scope_ = nullptr;
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

// What they take by themselves is not the machine's.
Task<Result<void>> measure_machines(Simulator& sim) {
  const Roster roster(sim.hosts());
  const auto hosts = std::make_shared<std::vector<BareHost>>(sim.hosts());
  sim.set_program(
      [hosts, &roster](SimHost& host) { return (*hosts)[host.index()].run(host, roster); });
  const uint64_t before = sim.memory_in_use();
  sim.start_all();
  CO_TRY_DO(co_await sim.clock().sleep(kIdle));
  const auto taken = static_cast<double>(sim.memory_in_use() - before);
  sim.figure("machine_bytes_per_host", taken / sim.hosts());
  sim.set_program(nullptr);
  hosts->clear();
  co_return {};
}

class Launch {
 public:
  explicit Launch(Simulator& sim)
      : sim_(sim),
        slots_(setting(sim, "slots", sim.hosts() > kManyHosts ? 1 : kSlots)),
        most_processes_(setting(sim, "processes", UINT32_MAX)),
        payload_bytes_(setting(sim, "payload_bytes", 1)),
        boot_over_(static_cast<int64_t>(
            1e9 * sim.setting("boot_over_s", sim.hosts() > kManyHosts ? kBootOver_s : 0))),
        stage_(std::make_shared<ClusterStage>(
            sim, StageOptions{.fan_out = setting(sim, "fan_out", kUsualFanOut),
                              .slots = slots_,
                              .agents_restart = has_faults(sim)})) {}

  Task<Result<void>> run(Duration length) {
    CO_TRY_DO(co_await boot());
    if (has_faults(sim_)) {
      CO_TRY_DO(co_await suffer(sim_, length));
      CO_TRY_DO(co_await until_whole());
    }
    CO_TRY_DO(co_await launch());
    if (sim_.setting("launch_only", 0) > 0) co_return {};
    CO_TRY_DO(co_await lose_a_host());
    CO_TRY_DO(co_await end());
    co_return {};
  }

 private:
  double seconds_since(int64_t begin_ns) const {
    return static_cast<double>(sim_.now_ns() - begin_ns) * 1e-9;
  }
  double bytes_per_host(uint64_t before) const {
    return static_cast<double>(sim_.memory_in_use() - before) / sim_.hosts();
  }

  Task<Result<void>> until(bool (Launch::*holds)() const, std::string_view what) {
    const Instant late = sim_.clock().now() + kPatience;
    while (!(this->*holds)() && !sim_.failure()) {
      CO_TRY_DO(co_await sim_.clock().sleep(kLook));
      if (sim_.clock().now() < late) continue;
      const std::string now = job_ == nullptr ? "no job yet" : stage_->describe(*job_);
      sim_.check(false, "{} takes too long: {}", what, now);
    }
    co_return {};
  }
  bool is_whole() const {
    return stage_->head() != nullptr && stage_->head()->tree().alive().size() == sim_.hosts();
  }
  bool is_running() const { return job_->running_at_ns != 0; }
  bool is_replaced() const { return stage_->lives() >= processes_ + slots_; }
  bool is_over() const { return job_->final_state.has_value(); }
  Task<Result<void>> until_whole() { return until(&Launch::is_whole, "the tree"); }

  Task<Result<void>> boot() {
    const uint64_t before = sim_.memory_in_use();
    if (boot_over_ > Duration::zero()) {
      CO_TRY_DO(co_await stage_->start_over(boot_over_));
    } else {
      stage_->start();
    }
    const int64_t booted_ns = sim_.now_ns();
    CO_TRY_DO(co_await until_whole());
    sim_.figure("attach_s", seconds_since(booted_ns));
    CO_TRY_DO(co_await sim_.clock().sleep(sim_.hosts() > kManyHosts ? kShortIdle : kIdle));
    sim_.figure("idle_bytes_per_host", bytes_per_host(before));
    co_return {};
  }

  Task<Result<void>> launch() {
    const uint32_t spare_hosts = 1 + (sim_.hosts() - 1) / 100;
    processes_ = uint64_t{slots_} * (sim_.hosts() - 1 - spare_hosts);
    processes_ = std::min<uint64_t>(processes_, most_processes_);
    job::Spec spec = gang_job(static_cast<uint32_t>(processes_), kPatience);
    job::Role& role = *spec.mutable_roles(0);
    role.set_strategy(job::ONE_FOR_ONE);
    for (job::Budget& budget : *role.mutable_budgets()) budget.set_delay_ns(0);
    // Whatever a job carries travels in its launch.
    role.add_environment("PAYLOAD=" + std::string(payload_bytes_, 'x'));
    const uint64_t before = sim_.memory_in_use();
    job_ = &stage_->submit(std::move(spec));
    CO_TRY_DO(co_await until(&Launch::is_running, "the launch"));
    if (sim_.failure()) co_return {};
    sim_.check(stage_->lives() >= processes_, "{} of {} processes were started", stage_->lives(),
               processes_);
    sim_.figure("processes", static_cast<double>(processes_));
    sim_.figure("launch_s",
                static_cast<double>(job_->running_at_ns - job_->submitted_at_ns) * 1e-9);
    sim_.figure("job_bytes_per_host", bytes_per_host(before));
    co_return {};
  }

  // Not the coordinator's; that is another scenario.
  Task<Result<void>> lose_a_host() {
    if (sim_.failure()) co_return {};
    auto info = stage_->head()->info(job_->id);
    if (!sim_.check(info.has_value(), "the head does not know its job")) co_return {};
    RangeSet members = nodes_of(info->layout());
    members.remove(info->coordinator());
    const uint32_t victim = members.at(members.size() / 2);
    const int64_t begin_ns = sim_.now_ns();
    sim_.crash(victim);
    CO_TRY_DO(co_await until(&Launch::is_replaced, "the replacement"));
    sim_.figure("replace_s", seconds_since(begin_ns));
    co_return {};
  }

  Task<Result<void>> end() {
    if (sim_.failure()) co_return {};
    const int64_t begin_ns = sim_.now_ns();
    cluster::KillRequest request;
    request.set_job(job_->id);
    const bool killed = co_await stage_->kill(std::move(request));
    sim_.check(killed, "the job cannot be killed");
    CO_TRY_DO(co_await until(&Launch::is_over, "the end"));
    sim_.figure("end_s", seconds_since(begin_ns));
    co_return {};
  }

  Simulator& sim_;
  uint32_t slots_;
  uint32_t most_processes_;
  uint32_t payload_bytes_;
  Duration boot_over_;
  std::shared_ptr<ClusterStage> stage_;
  SubmittedJob* job_ = nullptr;
  uint64_t processes_ = 0;
};

Task<Result<void>> run(Simulator& sim, Duration length) {
  if (sim.setting("bare", 0) > 0) co_return co_await measure_machines(sim);
  Launch launch(sim);
  co_return co_await launch.run(length);
}

}  // namespace

const Scenario kScale = {"scale", "one job over all hosts, and what it takes", 100, 4, 20s, run};

}  // namespace tutti::sims
