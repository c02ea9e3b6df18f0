// A coordinator against hosts that obey as host_job.cc does, on a network that loses, doubles and
// reorders, with hosts and coordinators that die and come back; thousands of seeds.
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>

#include "cluster/coordinator_test.h"
#include "cluster/placement.h"
#include "cluster/report_fold.h"

namespace tutti {
namespace {

constexpr uint32_t kHosts = 6;
constexpr Duration kFaultsEnd = 40s;
constexpr Duration kLimit = 400s;

bool is_over(cluster::JobState state) { return state >= cluster::SUCCEEDED; }

struct Model {
  struct Local {
    uint64_t epoch = 0;
    enum Phase : uint8_t { starting, running, exited } phase = starting;
    bool told = false;
    bool stopping = false;
    uint64_t life = 0;  // so that what was planned for an earlier one does not happen to it
    cluster::Row row;
  };
  struct HostJobModel {
    cluster::Directive directive;
    std::map<ProcessId, Local> processes;
    RangeSet pending;
    std::optional<cluster::End> end;
    bool confirmed = true;
  };
  struct Host {
    NodeId node = 0;
    bool up = true;
    uint32_t boots = 0;
    std::optional<HostJobModel> job;
    uint64_t ended_epoch = 0;  // in its log
  };

  explicit Model(uint32_t seed) : draw(seed), seed(seed) {
    spec = draw_spec();
    hosts.resize(kHosts + 1);
    for (NodeId node = 1; node <= kHosts; ++node) {
      hosts[node].node = node;
      placement.set_host(node, 3);
      placement.set_alive(node, true);
    }
    layout = placement.place(spec).value();
    appoint(true);
    for (NodeId node = 1; node <= kHosts; ++node) check_in(node);
    break_things();
  }

  // ---- chance and time

  uint32_t below(uint32_t end) { return static_cast<uint32_t>(draw() % end); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  bool faulty() const { return now < Instant() + kFaultsEnd; }
  void later(Duration delay, std::function<void()> action) {
    events.push({now + delay, next_event++, std::move(action)});
  }
  // Over the network: sometimes never, sometimes twice, in any order.
  void deliver(const std::function<void()>& action) {
    if (faulty() && lossy && chance(15)) return;
    later(Duration(1ms) * (1 + below(lossy ? 400 : 5)), action);
    if (faulty() && lossy && chance(10)) later(Duration(1ms) * (1 + below(3000)), action);
  }
  void run() {
    while (!events.empty() && !finished()) {
      Event event = events.top();
      events.pop();
      now = event.at;
      if (now > Instant() + kLimit) break;
      event.action();
    }
  }
  bool finished() const {
    if (!is_over(head_state) || coordinator != nullptr || faulty()) return false;
    for (const Host& host : hosts)
      if (host.job) return false;
    return true;
  }
  void must(bool holds, const char* what) {
    if (holds || !failure.empty()) return;
    failure = fmt::format("seed {}, {} ms: {}", seed, to_ns(now) / 1'000'000, what);
  }

  job::Spec draw_spec() {
    const auto strategy = [&] { return static_cast<job::Strategy>(below(3)); };
    const Duration delay = Duration(100ms) * below(20);
    std::vector<RoleOptions> roles;
    if (chance(40))
      roles.push_back({.name = "load",
                       .kind = job::Role::TASK,
                       .count = 1 + below(3),
                       .strategy = strategy(),
                       .delay = delay});
    RoleOptions work{.count = 1 + below(6), .strategy = strategy(), .delay = delay};
    if (!roles.empty()) work.needs = {"load"};
    roles.push_back(work);
    if (chance(30))
      roles.push_back({.name = "watch",
                       .kind = job::Role::SIDECAR,
                       .strategy = strategy(),
                       .beside = "work",
                       .delay = delay});
    if (chance(30))
      roles.push_back({.name = "store",
                       .kind = job::Role::SERVICE,
                       .count = 1 + below(2),
                       .strategy = strategy(),
                       .delay = delay});
    job::Spec spec = spec_of(std::move(roles));
    for (job::Role& role : *spec.mutable_roles()) {
      if (role.kind() != job::Role::SIDECAR && role.kind() != job::Role::SERVICE) continue;
      job::Budget& budget = *role.add_budgets();
      budget.set_error(job::NONE);
      budget.set_restarts(kAlwaysRestart);
    }
    if (chance(30)) let_escalate(spec);
    spec.set_strategy(strategy());
    lossy = chance(70);
    return spec;
  }

  // Few restarts of single processes, and then of more; of the whole job enough to end well.
  void let_escalate(job::Spec& spec) {
    for (job::Role& role : *spec.mutable_roles()) {
      for (job::Budget& budget : *role.mutable_budgets()) budget.set_restarts(1 + below(2));
      for (const job::Scope scope : {job::HOST, job::ROLE, job::JOB}) {
        if (scope != job::JOB && chance(30)) continue;
        job::Escalation& escalation = *role.add_escalate();
        escalation.set_scope(scope);
        escalation.set_restarts(scope == job::JOB ? kAlwaysRestart : 1 + below(2));
      }
    }
  }

  // ---- the coordinator's agent

  void appoint(bool fresh) {
    ++term;
    cluster::Appointment appointment;
    appointment.set_job(7);
    appointment.set_term(term);
    *appointment.mutable_spec() = spec;
    *appointment.mutable_layout() = layout;
    appointment.set_fresh(fresh);
    set_pairs(nodes_of(layout).minus(placement.alive()), appointment.mutable_lost());
    kept.Clear();
    *kept.mutable_appointment() = appointment;
    begin();
  }
  void begin() {
    coordinator = std::make_unique<Coordinator>(kept, 1, now);
    ++coordinator_life;
    carry_out();
    tick_coordinator();
  }
  void carry_out() {
    if (coordinator == nullptr) return;
    const CoordinatorOrders orders = coordinator->take_orders();
    const uint64_t epoch = coordinator->epoch();
    must(epoch >= highest_epoch, "an epoch went back");
    const uint64_t kept_before = epoch_of(kept.appointment().term(), kept.counter());
    if (orders.log) {
      // It may die before the record is there, or after, with nothing sent.
      if (orders.durably && faulty() && chance(3)) return crash_coordinator();
      kept = coordinator->record();
      if (orders.durably && faulty() && chance(3)) return crash_coordinator();
    }
    must(epoch == kept_before || orders.log, "an epoch was used that nobody keeps");
    if (epoch != kept_before && kept.counter() > 1)
      must(orders.durably, "an epoch was sent that may be forgotten");
    highest_epoch = std::max(highest_epoch, epoch);
    for (const CoordinatorOrders::Parcel& parcel : orders.parcels) {
      for (const NodeId node : parcel.to.members()) {
        const cluster::Message message = parcel.message;
        deliver(
            [this, node, message] { node == kHead ? head_hears(message) : take(node, message); });
      }
    }
    if (coordinator->over()) coordinator.reset();
  }
  void tick_coordinator() {
    const uint64_t life = coordinator_life;
    if (coordinator == nullptr) return;
    const Duration wait = std::min<Duration>(coordinator->due() - now, 500ms);
    later(std::max<Duration>(wait, 1ms), [this, life] {
      if (life != coordinator_life || coordinator == nullptr) return;
      if (coordinator->due() <= now) coordinator->on_time(now);
      carry_out();
      tick_coordinator();
    });
  }
  void crash_coordinator() {
    coordinator.reset();
    ++coordinator_life;
    later(Duration(1ms) * below(3000), [this] {
      if (coordinator != nullptr || is_over(head_state)) return;
      // Its agent comes back, or the head finds another.
      chance(50) ? begin() : appoint(false);
    });
  }

  // ---- the head

  void head_hears(const cluster::Message& message) {
    const cluster::JobUpdate& update = message.update();
    if (update.term() != term) return;
    if (is_over(head_state) && !is_over(update.state())) return;  // it was long on its way
    if (is_over(head_state)) must(update.state() == head_state, "two final states");
    head_state = update.state();
    if (head_state == cluster::SUCCEEDED) check_success();
    const uint64_t sequence = update.sequence();
    const uint32_t of_term = term;
    deliver([this, sequence, of_term] {
      if (coordinator == nullptr || coordinator->appointment().term() != of_term) return;
      coordinator->on_update_ack(sequence);
      carry_out();
    });
    const RangeSet wanted = set_from(update.wanted()).value();
    if (wanted.empty() || is_over(head_state)) return;
    auto next = placement.replace(spec, layout, wanted);
    if (!next) return;
    layout = *next;
    cluster::Grant grant;
    grant.set_job(7);
    grant.set_term(term);
    *grant.mutable_layout() = layout;
    deliver([this, grant] {
      if (coordinator == nullptr) return;
      coordinator->on_grant(grant, now);
      carry_out();
    });
  }

  void check_success() {
    const JobNumbers numbers(spec);
    for (size_t index = 0; index < numbers.roles(); ++index) {
      const job::Role::Kind kind = spec.roles(static_cast<int>(index)).kind();
      if (kind != job::Role::GANG && kind != job::Role::TASK) continue;
      must(numbers.of_role(index).minus(returned).empty(), "a success of what never returned");
    }
  }

  // ---- hosts

  void report(Host& host, bool all) {
    if (!host.job || host.job->directive.epoch() == 0) return;
    HostJobModel& job = *host.job;
    cluster::JobReport report;
    report.set_job(7);
    bool starting = false;
    for (const auto& [process, local] : job.processes) {
      starting = starting || local.phase == Local::starting;
      if (local.phase == Local::running)
        *report.add_rows() =
            row_of(cluster::Row::STARTED, local.epoch, RangeSet(process), RangeSet(host.node));
      if (local.phase != Local::exited || (local.told && !all)) continue;
      cluster::Row row = local.row;
      row.set_epoch(local.epoch);
      set_pairs(RangeSet(process), row.mutable_processes());
      set_pairs(RangeSet(host.node), row.mutable_hosts());
      *report.add_rows() = row;
    }
    if (all && job.pending.empty() && !starting) {
      cluster::Row row =
          row_of(cluster::Row::STARTED, job.directive.epoch(), {}, RangeSet(host.node));
      row.set_count(job.directive.revision() + 1);
      *report.add_rows() = row;
    }
    job.confirmed = true;
    fold_rows(report);
    send_report(report);
  }
  void send_report(const cluster::JobReport& report) {
    deliver([this, report] {
      if (coordinator != nullptr) {
        coordinator->on_report(report, now);
        return carry_out();
      }
      if (!is_over(head_state)) return;
      // The head knows that it is over.
      cluster::Message message;
      message.mutable_end()->set_job(7);
      message.mutable_end()->set_epoch(~uint64_t{0});
      RangeSet to;
      for (const cluster::Row& row : report.rows())
        if (!says_ended(row)) to.add(set_from(row.hosts()).value());
      for (const NodeId node : to.members())
        deliver([this, node, message] { take(node, message); });
    });
  }
  void say_ended(NodeId node) {
    cluster::JobReport report;
    report.set_job(7);
    *report.add_rows() = row_of(cluster::Row::ENDED, 0, {}, RangeSet(node));
    send_report(report);
  }
  void check_in(NodeId node) {
    later(1s, [this, node] {
      Host& host = hosts[node];
      if (host.up && host.job) report(host, chance(30));
      check_in(node);
    });
  }
  void take(NodeId node, const cluster::Message& message) {
    Host& host = hosts[node];
    if (!host.up) return;
    if (message.has_directive()) on_directive(host, message.directive());
    if (message.has_end()) on_end(host, message.end());
    if (message.has_ack() && host.job)
      for (const cluster::Ack::Ended& ended : message.ack().ended())
        for (const ProcessId process : set_from(ended.processes()).value().members())
          if (const auto known = host.job->processes.find(process);
              known != host.job->processes.end() && known->second.phase == Local::exited &&
              known->second.epoch == ended.epoch())
            known->second.told = true;
  }
  void on_directive(Host& host, const cluster::Directive& directive) {
    if (directive.epoch() <= host.ended_epoch) {
      if (!host.job) say_ended(host.node);
      return;
    }
    must(directive.epoch() <= highest_epoch, "a host heard of an epoch that was not kept");
    if (!host.job) host.job.emplace();
    HostJobModel& job = *host.job;
    const auto age = [](const cluster::Directive& d) { return std::pair(d.epoch(), d.revision()); };
    if (job.end) return;
    if (age(directive) <= age(job.directive)) {
      if (age(directive) == age(job.directive)) report(host, true);
      return;
    }
    job.directive = directive;
    const JobNumbers numbers(spec);
    const RangeSet here = processes_on(numbers, directive.layout(), RangeSet(host.node));
    const RangeSet unwanted = set_from(directive.stop()).value();
    job.pending = RangeSet();
    for (const ProcessId process : set_from(directive.start()).value().common(here).members()) {
      const auto known = job.processes.find(process);
      if (known == job.processes.end() || known->second.epoch < directive.epoch())
        job.pending.add(process);
    }
    for (auto& [process, local] : job.processes) {
      const bool leaves = !here.contains(process) ||
                          (local.epoch < directive.epoch() &&
                           (unwanted.contains(process) || job.pending.contains(process)));
      if (leaves) stop(host, process, local);
    }
    start_pending(host);
    report(host, true);
  }
  void on_end(Host& host, const cluster::End& end) {
    host.ended_epoch = std::max(host.ended_epoch, end.epoch());
    if (!host.job) return say_ended(host.node);
    HostJobModel& job = *host.job;
    if (end.epoch() < job.directive.epoch() || job.end) return;
    job.end = end;
    job.pending = RangeSet();
    for (auto& [process, local] : job.processes) stop(host, process, local);
    look_for_end(host);
  }
  void look_for_end(Host& host) {
    if (!host.job || !host.job->end) return;
    for (const auto& [process, local] : host.job->processes)
      if (local.phase != Local::exited) return;
    host.job.reset();
    say_ended(host.node);
  }
  void stop(Host& host, ProcessId process, Local& local) {
    if (local.phase == Local::exited || local.stopping) return;
    local.stopping = true;
    const uint64_t life = local.life;
    later(Duration(1ms) * below(800),
          [this, &host, process, life] { exit(host, process, life, job::NONE, true); });
  }
  void exit(Host& host, ProcessId process, uint64_t life, job::ErrorClass error, bool by_us) {
    if (!host.job) return;
    const auto known = host.job->processes.find(process);
    if (known == host.job->processes.end() || known->second.life != life ||
        known->second.phase == Local::exited)
      return;
    Local& local = known->second;
    local.phase = Local::exited;
    local.stopping = false;
    local.row = row_of(error == job::NOT_STARTED ? cluster::Row::NOT_STARTED : cluster::Row::EXITED,
                       local.epoch, {});
    local.row.mutable_exit()->set_by_us(by_us);
    local.row.mutable_exit()->set_error(by_us ? job::NONE : error);
    if (!by_us && error == job::NONE) returned.add(process);
    start_pending(host);
    report(host, false);
    look_for_end(host);
  }
  void start_pending(Host& host) {
    HostJobModel& job = *host.job;
    for (const auto& [process, local] : job.processes)
      if (local.stopping && local.phase != Local::exited) return;
    for (const ProcessId process : std::exchange(job.pending, {}).members()) {
      const uint64_t epoch = job.directive.epoch();
      must(started.emplace(process, epoch).second, "a process was started twice in one epoch");
      Local& local = job.processes[process];
      local = Local{};
      local.epoch = epoch;
      local.life = ++lives;
      plan_life(host, process, local.life);
    }
  }
  void plan_life(Host& host, ProcessId process, uint64_t life) {
    if (faulty() && chance(3))
      return later(5ms, [this, &host, process, life] {
        exit(host, process, life, job::NOT_STARTED, false);
      });
    later(Duration(1ms) * below(300), [this, &host, process, life] {
      if (!host.job) return;
      const auto known = host.job->processes.find(process);
      if (known == host.job->processes.end() || known->second.life != life) return;
      if (known->second.phase != Local::starting) return;
      known->second.phase = Local::running;
      report(host, false);
    });
    const JobNumbers numbers(spec);
    const job::Role& role = spec.roles(static_cast<int>(numbers.role_of(process)));
    const bool killed = faulty() && chance(25);
    const bool service = role.kind() == job::Role::SERVICE || role.kind() == job::Role::SIDECAR;
    if (service && !killed) return;
    const bool user_error = faulty() && chance(1);
    const job::ErrorClass error = user_error ? job::USER_ERROR : killed ? job::KILLED : job::NONE;
    later(Duration(1ms) * (300 + below(20'000)),
          [this, &host, process, life, error] { exit(host, process, life, error, false); });
  }

  // ---- faults

  void break_things() {
    later(Duration(1ms) * (500 + below(6000)), [this] {
      if (!faulty()) return heal();
      const uint32_t kind = below(4);
      if (kind == 0 && coordinator != nullptr) crash_coordinator();
      if (kind == 1 || kind == 2) crash_host(hosts[1 + below(kHosts)]);
      if (kind == 3 && chance(5) && coordinator != nullptr) {
        cluster::EndRequest request;
        request.set_grace_ns(-1);
        coordinator->on_end_request(request, now);
        carry_out();
      }
      break_things();
    });
  }
  void heal() {
    for (NodeId node = 1; node <= kHosts; ++node)
      if (!hosts[node].up) come_back(hosts[node]);
  }
  void crash_host(Host& host) {
    if (!host.up) return;
    host.up = false;
    const uint32_t boot = ++host.boots;
    // The tree misses it a second later, unless it is back by then.
    later(1s, [this, &host, boot] {
      if (host.up || host.boots != boot) return;
      placement.set_alive(host.node, false);
      const NodeId node = host.node;
      later(Duration(1ms) * below(200), [this, node] {
        if (coordinator == nullptr) return;
        coordinator->on_lost(RangeSet(node), now);
        carry_out();
      });
    });
    later(Duration(1ms) * (200 + below(8000)), [this, &host, boot] {
      if (!host.up && host.boots == boot) come_back(host);
    });
  }
  // Its log says what it had; all of it died with it.
  void come_back(Host& host) {
    host.up = true;
    placement.set_alive(host.node, true);
    if (!host.job) return;
    HostJobModel& job = *host.job;
    job.end.reset();
    for (const ProcessId process : std::exchange(job.pending, {}).members()) {
      job.processes[process] = Local{};
      job.processes[process].epoch = job.directive.epoch();
    }
    for (auto& [process, local] : job.processes) {
      local.life = ++lives;
      local.stopping = false;
      local.told = false;
      if (local.phase == Local::exited) continue;
      local.phase = Local::exited;
      local.row = row_of(cluster::Row::EXITED, local.epoch, {});
      local.row.mutable_exit()->set_error(job::KILLED);
    }
    report(host, true);
  }

  struct Event {
    Instant at;
    uint64_t sequence;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::pair(at, sequence) > std::pair(other.at, other.sequence);
    }
  };

  std::mt19937 draw;
  uint32_t seed;
  Instant now{};
  uint64_t next_event = 0;
  std::priority_queue<Event> events;
  job::Spec spec;
  bool lossy = true;
  Placement placement;
  Segments layout;
  uint32_t term = 0;
  std::vector<Host> hosts;
  std::unique_ptr<Coordinator> coordinator;
  uint64_t coordinator_life = 0;
  cluster::CoordinatorRecord kept;  // in the log
  uint64_t highest_epoch = 0;
  std::set<std::pair<ProcessId, uint64_t>> started;
  RangeSet returned;  // processes that returned 0 by themselves, some time
  uint64_t lives = 0;
  cluster::JobState head_state = cluster::QUEUED;
  std::string failure;
};

TEST_CASE("whatever is lost and whoever dies, a job ends once and starts nothing twice") {
  constexpr uint32_t kSeeds = 3000;
  std::map<int, uint32_t> ends;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    Model model(seed);
    model.run();
    if (!model.finished())
      model.must(false, "the job has not ended, though nothing fails any more");
    if (!model.failure.empty()) {
      std::string text = model.failure;
      if (model.coordinator != nullptr) text += "; " + model.coordinator->text();
      for (const Model::Host& host : model.hosts)
        if (host.job)
          text += fmt::format("; host {} epoch {:x}", host.node, host.job->directive.epoch());
      FAIL_CHECK(text);
    }
    ++ends[model.head_state];
  }
  // Faults were rare enough for jobs to succeed, and frequent enough for some not to.
  CHECK(ends[cluster::SUCCEEDED] > 1000);
  CHECK(ends[cluster::FAILED] > 10);
  CHECK(ends[cluster::KILLED_BY_USER] > 10);
}

}  // namespace
}  // namespace tutti
