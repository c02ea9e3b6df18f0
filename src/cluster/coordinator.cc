#include "cluster/coordinator.h"

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "cluster/job_words.h"
#include "cluster/role_order.h"

namespace tutti {
namespace {

// A coordinator that takes over asks all hosts what they run; one that does not answer by then is
// as lost as one that is silent in the tree.
constexpr Duration kAdoptionPatience = 3s;

constexpr Duration kFirstUpdate = 1s;

bool is_over(cluster::JobState state) { return state >= cluster::SUCCEEDED; }

// Whether the job ends when all such processes have returned 0.
bool is_awaited(const job::Role& role) {
  return role.kind() == job::Role::GANG || role.kind() == job::Role::TASK;
}

// "hang: made no progress for 30.0 s". What could not be started has a cause that says it all:
// "start rank 0: folder /data: No such file or directory; not started".
std::string why_text(const cluster::Row& row) {
  std::string text(error_class_text(row.exit().error()));
  if (row.message().empty()) return text;
  if (row.exit().error() == job::NOT_STARTED) return fmt::format("{}; {}", row.message(), text);
  return fmt::format("{}: {}", text, row.message());
}

}  // namespace

Coordinator::Coordinator(cluster::CoordinatorRecord record, NodeId self, Instant now)
    : appointment_(std::move(*record.mutable_appointment())),
      numbers_(appointment_.spec()),
      self_(self),
      counter_(record.counter()),
      now_(now),
      processes_(numbers_.size()),
      counts_(numbers_.roles()),
      returned_(numbers_.roles()),
      restarts_(std::max(record.restarts(), appointment_.restarts())),
      culprit_(std::move(*record.mutable_culprit())),
      gang_epochs_(record.gang_epochs().begin(), record.gang_epochs().end()),
      lives_(record.lives() + 1) {
  gang_epochs_.resize(numbers_.roles());
  for (const job::Role& role : appointment_.spec().roles()) budgets_.emplace_back(role);
  // Of ours, if we died, or of those before us.
  for (const auto& taken : counter_ != 0 ? record.taken() : appointment_.taken())
    if (taken.role() < budgets_.size()) budgets_[taken.role()].restore(taken, now);
  if (numbers_.size() != 0) idle_ = RangeSet(0, numbers_.size() - 1);
  touched_ = nodes();
  if (appointment_.spec().timeout_ns() > 0)
    timeout_at_ = now + Duration(appointment_.spec().timeout_ns());
  // By then our record is on disk, and the head may rely on us.
  update_at_ = now + kFirstUpdate;
  if (record.final_state() != cluster::QUEUED) {
    begin_end(record.final_state(), record.why(), Duration(appointment_.spec().grace_ns()),
              SIGTERM);
    return;
  }
  if (counter_ != 0) {
    go_on_from(record);
    return;
  }
  next_epoch();
  if (appointment_.fresh()) {
    // The head gave this epoch with the appointment, and keeps it.
    orders_.durably = false;
    gang_epochs_.assign(numbers_.roles(), epoch());
    start_ready();
    orders_.durably = false;
    return;
  }
  // Another was before us, of which we know nothing but what the hosts say.
  begun_ = idle_;
  adopted_by_ = now + kAdoptionPatience;
  given_up_ = set_from(appointment_.lost()).value_or(RangeSet()).common(nodes());
  send_directive(unheard());
  if (unheard().empty()) adopted();
}

// We died and were read from the log: the epoch is as good as it was. What was to be started in it
// is, or will be when the hosts hear of it again; what ran before they tell.
void Coordinator::go_on_from(const cluster::CoordinatorRecord& record) {
  // What hosts said before we died may still be on its way; they answer this one anew.
  revision_ = record.revision() + 1;
  orders_.log = orders_.durably = true;
  start_ = set_from(record.start()).value_or(RangeSet());
  stop_ = set_from(record.stop()).value_or(RangeSet());
  dead_ = set_from(record.dead()).value_or(RangeSet());
  begun_ = set_from(record.begun()).value_or(RangeSet());
  restart_ = set_from(record.restart()).value_or(RangeSet());
  if (!restart_.empty()) restart_at_ = now_;
  set_phase(start_, Phase::starting);
  for (const ProcessId number : start_.members()) processes_[number].epoch = epoch();
  adopted_by_ = now_ + kAdoptionPatience;
  // How much of the notice is left nobody knows.
  if (record.preempted()) begin_notice(Duration(record.end_grace_ns()));
  send_directive(nodes());
}

cluster::CoordinatorRecord Coordinator::record() const {
  cluster::CoordinatorRecord record;
  *record.mutable_appointment() = appointment_;
  record.set_counter(counter_);
  record.set_restarts(restarts_);
  *record.mutable_taken() = taken_restarts();
  record.set_revision(revision_);
  set_pairs(start_, record.mutable_start());
  set_pairs(stop_, record.mutable_stop());
  set_pairs(dead_, record.mutable_dead());
  set_pairs(begun_, record.mutable_begun());
  set_pairs(restart_, record.mutable_restart());
  record.mutable_gang_epochs()->Assign(gang_epochs_.begin(), gang_epochs_.end());
  record.set_lives(lives_);
  if (culprit_.has_exit()) *record.mutable_culprit() = culprit_;
  record.set_preempted(end_at_.has_value());
  record.set_end_grace_ns(to_ns(end_grace_));
  if (state_ != cluster::ENDING && !is_over(state_)) return record;
  record.set_final_state(final_state_);
  record.set_why(why_);
  return record;
}

google::protobuf::RepeatedPtrField<cluster::TakenRestarts> Coordinator::taken_restarts() const {
  google::protobuf::RepeatedPtrField<cluster::TakenRestarts> all;
  for (size_t index = 0; index < budgets_.size(); ++index)
    for (cluster::TakenRestarts& taken : budgets_[index].taken()) {
      taken.set_role(static_cast<uint32_t>(index));
      *all.Add() = std::move(taken);
    }
  return all;
}

void Coordinator::next_epoch() {
  ++counter_;
  revision_ = 0;
  // Hosts heed the newest directive only: what they may not have started yet is started with it, or
  // later in this epoch. Where it was started it has no part in this one.
  stop_ = in_phase(start_, Phase::starting);
  set_phase(stop_, Phase::idle);
  start_ = heard_ = RangeSet();
  directed_ = false;
  orders_.log = orders_.durably = true;
}

void Coordinator::set_phase(const RangeSet& processes, Phase phase) {
  for (const RangeSet::Range& range : processes.ranges()) {
    for (uint64_t number = range.first; number <= range.last; ++number) {
      Process& process = processes_[number];
      RoleCount& count = counts_[numbers_.role_of(static_cast<ProcessId>(number))];
      count.running -= process.phase == Phase::running ? 1 : 0;
      count.done -= process.phase == Phase::done ? 1 : 0;
      count.running += phase == Phase::running ? 1 : 0;
      count.done += phase == Phase::done ? 1 : 0;
      process.phase = phase;
      if (phase == Phase::running) continue;
      count.well -= process.well ? 1 : 0;
      process.well = false;
    }
  }
  if (phase == Phase::idle) {
    idle_.add(processes);
  } else {
    idle_.remove(processes);
  }
}

RangeSet Coordinator::in_phase(const RangeSet& processes, Phase phase) const {
  RangeSet found;
  for (const RangeSet::Range& range : processes.ranges())
    for (uint64_t number = range.first; number <= range.last; ++number)
      if (processes_[number].phase == phase) found.add(static_cast<ProcessId>(number));
  return found;
}

bool Coordinator::ready(size_t index) const {
  const auto satisfied = [&](const std::string& name) {
    const auto& roles = appointment_.spec().roles();
    const auto found = std::ranges::find(roles, name, &job::Role::name);
    if (found == roles.end()) return true;
    const auto needed = static_cast<size_t>(found - roles.begin());
    const uint32_t count = numbers_.count(needed);
    if (found->kind() == job::Role::TASK) return counts_[needed].done == count;
    if (found->has_health()) return counts_[needed].well == count;
    return counts_[needed].running + counts_[needed].done == count;
  };
  return std::ranges::all_of(role(index).needs(), satisfied);
}

// Processes of a sidecar that are beside these.
RangeSet Coordinator::beside(size_t sidecar, const RangeSet& processes) const {
  RangeSet found;
  const RangeSet hosts = processes.common(numbers_.of_role(numbers_.place_role(sidecar)));
  for (const RangeSet::Range& range : hosts.ranges())
    found.add(numbers_.number(sidecar, numbers_.index_of(range.first)),
              numbers_.number(sidecar, numbers_.index_of(range.last)));
  return found;
}

// Starts whatever waits for nothing any more.
void Coordinator::start_ready() {
  if (idle_.empty() || adopted_by_ || end_at_) return;
  if (state_ == cluster::ENDING || is_over(state_)) return;
  RangeSet startable;
  for (size_t index = 0; index < numbers_.roles(); ++index)
    if (!is_sidecar(index) && ready(index)) startable.add(numbers_.of_role(index));
  startable = startable.common(idle_).minus(restart_);
  // A sidecar is never there without the process it is beside.
  RangeSet sidecars;
  for (size_t index = 0; index < numbers_.roles(); ++index) {
    if (!is_sidecar(index)) continue;
    const RangeSet down =
        numbers_.of_role(numbers_.place_role(index)).common(idle_).minus(startable);
    sidecars.add(numbers_.of_role(index).minus(beside(index, down)));
  }
  startable.add(sidecars.common(idle_).minus(restart_));
  if (startable.empty()) return;
  set_phase(startable, Phase::starting);
  // From now on it is this life of theirs that counts; what is still told of an earlier one is old.
  for (const ProcessId number : startable.members()) {
    processes_[number].epoch = epoch();
    processes_[number].exited = false;
  }
  start_.add(startable);
  begun_.add(startable);
  if (directed_) ++revision_;
  orders_.log = orders_.durably = true;
  heard_ = RangeSet();
  send_directive(nodes().minus(lost_));
}

RangeSet Coordinator::affected_by(const RangeSet& processes) const {
  const job::Spec& spec = appointment_.spec();
  RangeSet affected;
  for (const RangeSet::Range& range : processes.ranges()) {
    const size_t failed_role = numbers_.role_of(range.first);
    const job::Strategy strategy = role(failed_role).strategy();
    const uint32_t count = numbers_.count(failed_role);
    for (uint64_t number = range.first; number <= range.last; ++number) {
      const uint32_t index = numbers_.index_of(static_cast<ProcessId>(number));
      const ProcessRange touched = affected_processes(strategy, index, count);
      affected.add(numbers_.number(failed_role, touched.first),
                   numbers_.number(failed_role, touched.end - 1));
      if (strategy != job::ONE_FOR_ONE) break;  // the first one has the rest with it
    }
    for (const size_t other : affected_roles(spec, failed_role))
      if (other != failed_role && numbers_.place_role(other) != failed_role)
        affected.add(numbers_.of_role(other));
  }
  // What was done need not be done again.
  for (size_t index = 0; index < numbers_.roles(); ++index)
    if (role(index).kind() == job::Role::TASK)
      affected.remove(in_phase(affected.common(numbers_.of_role(index)), Phase::done));
  // A sidecar lives and dies with the process it is beside.
  for (size_t index = 0; index < numbers_.roles(); ++index)
    if (is_sidecar(index)) affected.add(beside(index, affected));
  return affected;
}

// Processes of one role, for one reason.
void Coordinator::failed(const RangeSet& processes, const cluster::Row& row) {
  if (state_ == cluster::ENDING || is_over(state_)) return;
  if (adopted_by_) {
    deferred_.emplace_back(processes, row);
    return;
  }
  if (end_at_) return set_phase(processes, Phase::idle);  // they have ended for the notice
  const RangeSet fresh = processes.minus(restart_);       // others go down with what failed before
  if (fresh.empty()) return;
  const bool first = restart_.empty();
  if (first) {
    culprit_ = row;
    set_pairs(fresh, culprit_.mutable_processes());
  }
  const size_t index = numbers_.role_of(fresh.front());
  const auto restart = budgets_[index].ask(row.exit().error(), now_);
  if (!restart) {
    begin_end(cluster::FAILED, failure_text(index, row), Duration(appointment_.spec().grace_ns()),
              SIGTERM);
    return;
  }
  ++restarts_;
  dead_ = first ? fresh : dead_.plus(fresh);
  if (restart->scope == job::JOB)
    for (RestartBudgets& budgets : budgets_) budgets.begin_anew();
  const RangeSet widest = widened(fresh, restart->scope);
  RangeSet affected;
  for (size_t other = 0; other < numbers_.roles(); ++other)
    affected.add(affected_by(widest.common(numbers_.of_role(other))));
  const std::string remark = restart_remark(fresh, row, *restart);
  if (first || !remark.empty()) remark_ = remark;
  plan_restart(affected, restart->delay);
}

// Of one role, and all that is started again with them.
RangeSet Coordinator::widened(const RangeSet& processes, job::Scope scope) const {
  RangeSet role = numbers_.of_role(numbers_.role_of(processes.front()));
  if (scope == job::ROLE) return role;
  if (scope == job::JOB) return {0, numbers_.size() - 1};
  if (scope != job::HOST) return processes;
  RangeSet hosts;
  for (const ProcessId process : processes.members())
    if (const auto node = node_of(numbers_, appointment_.layout(), process)) hosts.add(*node);
  return processes.plus(processes_on(numbers_, appointment_.layout(), hosts).common(role));
}

std::string Coordinator::failure_text(size_t index, const cluster::Row& row) const {
  std::string text = why_text(row);
  const RestartBudgets& budgets = budgets_[index];
  if (!budgets.restarts(row.exit().error()) || row.exit().error() == job::USER_ERROR) {
    const bool never = role(index).budgets().empty() || row.exit().error() == job::USER_ERROR;
    return never ? text : text + "; no restarts left for this kind of error";
  }
  text += "; no restarts left for this kind of error";
  if (!budgets.escalates()) return text;
  std::string wider;
  for (const job::Escalation& escalation : role(index).escalate())
    wider += fmt::format("{}{}", wider.empty() ? "" : " and ", kScopeWords[escalation.scope()]);
  return text + fmt::format(", and those of its {} are used up", wider);
}

// Why and how much is started again, when there is more to say than why.
std::string Coordinator::restart_remark(const RangeSet& processes, const cluster::Row& row,
                                        const Restart& restart) {
  const size_t index = numbers_.role_of(processes.front());
  const std::string& name = role(index).name();
  const std::string who = fmt::format("{} {}", name, numbers_.index_of(processes.front()));
  if (restart.scope == job::PROCESS && row.exit().error() == job::NONE) {
    const uint32_t times = ++returned_[index];
    return fmt::format("{} ended with code 0 and is started again whenever it ends: {} {} so far",
                       who, times, times == 1 ? "time" : "times");
  }
  if (restart.scope == job::PROCESS) return "";
  const std::string whole = restart.scope == job::JOB ? "the job" : fmt::format("role '{}'", name);
  return fmt::format("{}; no restarts left for {}; restarted as a whole: {}{} ({} of {})",
                     why_text(row), who, whole, restart.scope == job::HOST ? " on its host" : "",
                     restart.number, restart.most);
}

void Coordinator::plan_restart(const RangeSet& processes, Duration delay) {
  restart_.add(processes);
  restart_at_ = std::max(restart_at_.value_or(now_), now_ + delay);
  const RangeSet dead = dead_;
  next_epoch();
  begin_gangs_of(processes);
  dead_ = dead;
  stop_.add(restart_);
  set_phase(restart_, Phase::idle);
  set_state(cluster::RESTARTING, remark_.empty() ? why_text(culprit_) : remark_);
  want_hosts();
  if (*restart_at_ <= now_ && wanted_.empty()) return restart();
  send_directive(nodes().minus(lost_));
}

void Coordinator::restart() {
  restart_ = RangeSet();
  restart_at_.reset();
  if (state_ == cluster::WAITING_FOR_HOSTS) set_state(cluster::RESTARTING, why_);
  start_ready();
}

void Coordinator::on_lost(const RangeSet& gone, Instant now) {
  now_ = now;
  const RangeSet mine = gone.common(nodes().plus(touched_)).minus(lost_);
  if (mine.empty() || is_over(state_)) return;
  if (adopted_by_) {
    given_up_.add(mine);
    if (unheard().empty()) adopted();
    return;
  }
  lost_.add(mine);
  if (state_ == cluster::ENDING) {
    on_ended(RangeSet());
    return;
  }
  const RangeSet there = processes_on(numbers_, appointment_.layout(), mine);
  for (size_t index = 0; index < numbers_.roles(); ++index) {
    RangeSet broken = there.common(numbers_.of_role(index));
    broken.remove(in_phase(broken, Phase::done));
    if (broken.empty()) continue;
    cluster::Row row;
    row.set_what(cluster::Row::EXITED);
    set_pairs(mine, row.mutable_hosts());
    set_pairs(broken, row.mutable_processes());
    row.mutable_exit()->set_error(job::HOST_LOST);
    failed(broken, row);
  }
  want_hosts();
}

// What waits to be started again and has no host.
void Coordinator::want_hosts() {
  const RangeSet before = wanted_;
  wanted_ = restart_.common(processes_on(numbers_, appointment_.layout(), lost_));
  if (!wanted_.empty() && wanted_ != before) set_state(cluster::WAITING_FOR_HOSTS, why_);
}

void Coordinator::on_grant(const cluster::Grant& grant, Instant now) {
  now_ = now;
  if (grant.term() != appointment_.term() || wanted_.empty() || state_ == cluster::ENDING) return;
  if (!check_layout(numbers_, grant.layout())) return;
  // The head may move more than what is wanted: what it granted before may not have come.
  RangeSet moved;
  for (ProcessId process = 0; process < numbers_.size(); ++process)
    if (node_of(numbers_, appointment_.layout(), process) !=
        node_of(numbers_, grant.layout(), process))
      moved.add(process);
  moved.remove(in_phase(moved, Phase::done));
  set_phase(moved, Phase::idle);
  restart_.add(moved);
  *appointment_.mutable_layout() = grant.layout();
  appointment_.set_members(grant.members());
  appointment_.set_master_address(grant.master_address());
  lost_.remove(nodes());
  touched_.add(nodes());
  // A host that was told to end the job in this epoch, and has it again, must see a newer one.
  const RangeSet dead = dead_;
  next_epoch();
  begin_gangs_of(moved);
  dead_ = dead;
  stop_.add(restart_);
  wanted_ = RangeSet();
  want_hosts();
  if (may_restart() && *restart_at_ <= now) restart();
}

void Coordinator::on_end_request(const cluster::EndRequest& request, Instant now) {
  now_ = now;
  const Duration grace(request.grace_ns() >= 0 ? request.grace_ns()
                                               : appointment_.spec().grace_ns());
  const int signal = request.signal() != 0 ? request.signal() : SIGTERM;
  if (is_over(state_)) return;
  if (state_ == cluster::ENDING) {
    // Asked again: with less patience.
    if (grace >= end_grace_) return;
    end_grace_ = grace;
    end_signal_ = signal;
    send_end(touched_.minus(lost_));
    return;
  }
  const Duration notice(appointment_.spec().notice_ns());
  if (!request.preempted() || notice <= 0s)
    return begin_end(cluster::KILLED_BY_USER, request.why(), grace, signal);
  if (end_at_) return;  // asked again: it was announced
  begin_notice(grace);
  if (directed_) ++revision_;
  orders_.log = orders_.durably = true;
  heard_ = RangeSet();
  send_directive(nodes().minus(lost_));
  look_for_end_of_notice();
}

// From here on whatever ends has ended for the notice.
void Coordinator::begin_notice(Duration grace) {
  const Duration notice(appointment_.spec().notice_ns());
  end_at_ = now_ + notice;
  end_grace_ = grace;
  restart_ = wanted_ = RangeSet();
  restart_at_.reset();
  set_state(state_, fmt::format("{}: ends within {}", kPreempted, format_duration(notice)));
}

// Services are there for others: when those have gone, nobody is left to be waited for.
void Coordinator::look_for_end_of_notice() {
  if (adopted_by_) return;
  const bool any = std::ranges::any_of(appointment_.spec().roles(), is_awaited);
  for (size_t index = 0; index < numbers_.roles(); ++index) {
    if (any && !is_awaited(role(index))) continue;
    const bool starting = !in_phase(numbers_.of_role(index), Phase::starting).empty();
    if (starting || counts_[index].running != 0) return;
  }
  begin_end(cluster::KILLED_BY_USER, kPreempted, end_grace_, SIGTERM);
}

void Coordinator::begin_end(cluster::JobState state, std::string why, Duration grace, int signal) {
  final_state_ = state;
  end_grace_ = grace;
  end_signal_ = signal;
  restart_ = wanted_ = RangeSet();
  restart_at_.reset();
  adopted_by_.reset();
  end_at_.reset();
  timeout_at_.reset();
  lost_.add(std::exchange(given_up_, {}));
  state_ = cluster::ENDING;
  why_ = std::move(why);
  // Hosts forget a job that ended: it must not begin again for want of memory. Our own host keeps
  // its log in order, and writes there before it forgets.
  orders_.log = true;
  orders_.durably = orders_.durably || touched_ != RangeSet(self_);
  send_end(touched_.minus(lost_));
  on_ended(RangeSet());
}

void Coordinator::look_for_end() {
  if (state_ == cluster::ENDING || is_over(state_) || adopted_by_) return;
  bool any = false;
  bool done = true;
  for (size_t index = 0; index < numbers_.roles(); ++index) {
    if (!is_awaited(role(index))) continue;
    any = true;
    done = done && counts_[index].done == numbers_.count(index);
  }
  if (end_at_ && !(any && done)) return look_for_end_of_notice();
  if (any && done)
    begin_end(cluster::SUCCEEDED, "", Duration(appointment_.spec().grace_ns()), SIGTERM);
}

void Coordinator::set_state(cluster::JobState state, std::string why) {
  state_ = state;
  why_ = std::move(why);
  TUTTI_LOG(debug, "job", {{"job", job()}, {"now", text()}, {"why", why_}});
  ++update_sequence_;
  update_acked_ = false;
  send_update();
}

void Coordinator::on_time(Instant now) {
  now_ = now;
  if (timeout_at_ && *timeout_at_ <= now)
    begin_end(cluster::TIMED_OUT, "its time was up", Duration(appointment_.spec().grace_ns()),
              SIGTERM);
  if (end_at_ && *end_at_ <= now)
    begin_end(cluster::KILLED_BY_USER, kPreempted, end_grace_, SIGTERM);
  // Who said that it comes back is asked again until it does, or is lost. While another is silent,
  // what is left has to begin anew anyway, and nobody waits.
  if (adopted_by_ && *adopted_by_ <= now && !unheard().empty() && unheard().minus(away_).empty())
    adopted_by_ = now + kAdoptionPatience;
  if (adopted_by_ && *adopted_by_ <= now) adopted();
  if (may_restart() && *restart_at_ <= now) restart();
  if (resend_at_ <= now) {
    resend_at_ = kNever;
    if (state_ == cluster::ENDING) {
      send_end(touched_.minus(lost_));
    } else if (const RangeSet silent = unheard(); !silent.empty()) {
      send_directive(silent);
    }
  }
  if (update_at_ <= now) send_update();
}

Instant Coordinator::due() const {
  Instant due = std::min(resend_at_, update_at_);
  for (const auto& at : {timeout_at_, end_at_, adopted_by_})
    if (at) due = std::min(due, *at);
  return may_restart() ? std::min(due, *restart_at_) : due;
}

}  // namespace tutti
