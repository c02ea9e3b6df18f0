// What a coordinator makes of what it hears.
#include "cluster/coordinator.h"
#include "cluster/report_fold.h"

namespace tutti {

void Coordinator::on_report(const cluster::JobReport& report, Instant now) {
  now_ = now;
  // How a process is doing makes sense only once it is known to run.
  const auto says_how = [](const cluster::Row& row) {
    return row.what() == cluster::Row::WELL || row.what() == cluster::Row::STALLED ||
           row.what() == cluster::Row::FAILING;
  };
  for (const cluster::Row& row : report.rows())
    if (!says_how(row)) on_row(row);
  for (const cluster::Row& row : report.rows())
    if (says_how(row)) on_row(row);
  for (const cluster::Row& row : report.rows()) on_exchange(row);
  if (adopted_by_ && unheard().empty()) adopted();
  start_ready();
  look_for_end();
}

void Coordinator::on_row(const cluster::Row& row) {
  auto processes = set_from(row.processes());
  auto hosts = set_from(row.hosts());
  if (!processes || !hosts) return;
  if (!processes->empty() && processes->back() >= numbers_.size()) return;
  // A host that lost its processes to another, and does not know it yet, speaks of its own only.
  if (!hosts->empty() && !processes->empty())
    *processes = processes->common(processes_on(numbers_, appointment_.layout(), *hosts));
  switch (row.what()) {
    case cluster::Row::STARTED:
      end_strangers(*hosts);
      if (row.epoch() == epoch() && row.count() > revision_) heard_.add(*hosts);
      learn_gang_epoch(row, *processes);
      return on_started(row, *processes);
    case cluster::Row::EXITED:
    case cluster::Row::NOT_STARTED: return on_exited(row, *processes);
    case cluster::Row::STALLED: return on_stalled(row, *processes);
    case cluster::Row::FAILING: return on_failing(row, *processes);
    case cluster::Row::ENDED:
    case cluster::Row::LEFT_BEHIND: note_leftovers(row, *hosts); return on_ended(*hosts);
    case cluster::Row::WELL:
      for (const ProcessId number : processes->members()) {
        Process& process = processes_[number];
        if (process.well || process.phase != Phase::running || process.epoch != row.epoch())
          continue;
        process.well = true;
        ++counts_[numbers_.role_of(number)].well;
      }
      return;
    default: return;
  }
}

void Coordinator::on_started(const cluster::Row& row, const RangeSet& processes) {
  RangeSet fresh;
  for (const RangeSet::Range& range : processes.ranges()) {
    for (uint64_t number = range.first; number <= range.last; ++number) {
      Process& process = processes_[number];
      const bool known =
          process.epoch == row.epoch() && (process.exited || process.phase == Phase::running);
      if (row.epoch() < process.epoch || known) continue;
      // One that is to be stopped, or was never wanted in that epoch, does not run for us.
      if (process.phase == Phase::idle && !may_adopt(static_cast<ProcessId>(number))) continue;
      process.epoch = row.epoch();
      process.exited = false;
      fresh.add(static_cast<ProcessId>(number));
    }
  }
  set_phase(fresh, Phase::running);
  if (end_at_ || (state_ != cluster::STARTING && state_ != cluster::RESTARTING)) return;
  if (!idle_.empty() || !unheard().empty()) return;
  for (size_t index = 0; index < numbers_.roles(); ++index)
    if (counts_[index].running + counts_[index].done != numbers_.count(index)) return;
  set_state(cluster::RUNNING, remark_);
}

void Coordinator::on_exited(const cluster::Row& row, const RangeSet& processes) {
  acks_[row.epoch()].add(processes);
  std::vector<RangeSet> returned(numbers_.roles());
  std::vector<RangeSet> broken(numbers_.roles());
  RangeSet fresh;
  for (const RangeSet::Range& range : processes.ranges()) {
    for (uint64_t number = range.first; number <= range.last; ++number) {
      Process& process = processes_[number];
      const bool known = process.epoch == row.epoch() && process.exited;
      if (row.epoch() < process.epoch || known) continue;
      process.epoch = row.epoch();
      process.exited = true;
      fresh.add(static_cast<ProcessId>(number));
      // We had told it to end, or a coordinator before us had.
      const bool adoptable = may_adopt(static_cast<ProcessId>(number)) && !row.exit().by_us();
      const bool wanted = process.phase != Phase::idle || adoptable;
      if (!wanted) continue;
      const size_t index = numbers_.role_of(static_cast<ProcessId>(number));
      const bool lives_on =
          role(index).kind() == job::Role::SERVICE || role(index).kind() == job::Role::SIDECAR;
      const bool well = row.what() == cluster::Row::EXITED && row.exit().error() == job::NONE &&
                        !row.exit().by_us();
      (well && !lives_on ? returned : broken)[index].add(static_cast<ProcessId>(number));
    }
  }
  if (!fresh.empty()) orders_.heard.push_back({std::move(fresh), row});
  cluster::Row why = row;
  if (row.exit().by_us()) why.mutable_exit()->set_error(job::KILLED);  // but not by our will
  for (size_t index = 0; index < numbers_.roles(); ++index) {
    if (!returned[index].empty()) set_phase(returned[index], Phase::done);
    if (!broken[index].empty()) failed(broken[index], why);
  }
}

void Coordinator::on_stalled(const cluster::Row& row, const RangeSet& processes) {
  if (end_at_) return;  // it ends anyway
  RangeSet stuck = in_phase(processes, Phase::running);
  for (const ProcessId number : stuck.members())
    if (processes_[number].epoch != row.epoch()) stuck.remove(number);
  if (stuck.empty()) return;
  cluster::Row hang = row;
  hang.mutable_exit()->set_error(job::HANG);
  failed(stuck, hang);
}

// Whatever is decided when they have ended, their epoch is over: whoever waits for them is told at
// once, and once, however many follow.
void Coordinator::on_failing(const cluster::Row& row, const RangeSet& processes) {
  RangeSet failing = in_phase(processes, Phase::running);
  for (const ProcessId number : failing.members())
    if (processes_[number].epoch != row.epoch()) failing.remove(number);
  if (failing.empty() || bereaved_ == epoch() || end_at_ || adopted_by_) return;
  if (state_ != cluster::RUNNING && state_ != cluster::STARTING && state_ != cluster::RESTARTING)
    return;
  bereaved_ = epoch();
  cluster::Message message;
  cluster::Bereaved& told = *message.mutable_bereaved();
  told.set_job(job());
  told.set_epoch(epoch());
  set_pairs(failing, told.mutable_processes());
  send(nodes().minus(lost_), std::move(message));
}

// Hosts say again and again what they could not end, and when they could.
void Coordinator::note_leftovers(const cluster::Row& row, const RangeSet& hosts) {
  remove_hosts(hosts, leftovers_);
  if (row.what() == cluster::Row::LEFT_BEHIND) *leftovers_.Add() = row;
}

void Coordinator::on_ended(const RangeSet& hosts) {
  // One of the layout may have refused what was told before, and begin what is told now.
  const RangeSet mine = state_ == cluster::ENDING ? RangeSet() : nodes().minus(lost_);
  touched_.remove(hosts.minus(mine));
  if (state_ != cluster::ENDING || !touched_.minus(lost_).empty()) return;
  resend_at_ = kNever;
  set_state(final_state_, why_);
}

// All hosts have said what they run, or will not.
void Coordinator::adopted() {
  const RangeSet silent = unheard().plus(std::exchange(given_up_, {}));
  adopted_by_.reset();
  forget_earlier_lives();
  settle_gang_epochs();
  for (const auto& [processes, row] : std::exchange(deferred_, {})) failed(processes, row);
  // What had been started and runs nowhere is lost with its host or its keeper.
  for (size_t index = 0; index < numbers_.roles(); ++index) {
    const RangeSet missing = idle_.common(begun_).common(numbers_.of_role(index));
    // Of a job that another began, a role that runs nowhere may never have been started.
    const bool was_started = counts_[index].running + counts_[index].done != 0;
    if (missing.empty() || !was_started) continue;
    cluster::Row row;
    row.set_what(cluster::Row::EXITED);
    row.mutable_exit()->set_error(job::HOST_LOST);
    failed(missing, row);
  }
  if (!silent.empty()) on_lost(silent, now_);
  if (state_ == cluster::STARTING && idle_.empty() && !end_at_)
    set_state(cluster::RUNNING, remark_);
  start_ready();
  look_for_end();
}

// A gang that is always started as a whole was so in its epoch, or after: what returned 0 in one
// before that was given up meanwhile, and where it was started again nobody is left to say.
void Coordinator::forget_earlier_lives() {
  told_epochs_.resize(numbers_.roles());
  for (size_t index = 0; index < numbers_.roles(); ++index) {
    if (role(index).kind() != job::Role::GANG || role(index).strategy() != job::ONE_FOR_ALL)
      continue;
    const uint64_t began = gang_epochs_[index] != 0 ? gang_epochs_[index] : told_epochs_[index];
    RangeSet earlier = in_phase(numbers_.of_role(index), Phase::done);
    for (const ProcessId number : RangeSet(earlier).members())
      if (processes_[number].epoch >= began) earlier.remove(number);
    set_phase(earlier, Phase::idle);
  }
}

// A host that is not of the job any more, or was given up, still has something of it.
void Coordinator::end_strangers(const RangeSet& hosts) {
  const RangeSet strangers = hosts.minus(nodes().minus(lost_));
  if (!strangers.empty()) send_end(strangers);
}

}  // namespace tutti
