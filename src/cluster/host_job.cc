#include "cluster/host_job.h"

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "cluster/end_descendants.h"

namespace tutti {
namespace {

RankRanges ranks_of(const RangeSet& processes) {
  RankRanges ranks;
  for (const RangeSet::Range& range : processes.ranges())
    ranks.push_back({range.first, range.last});
  return ranks;
}

}  // namespace

HostJob::HostJob(JobHost& host, uint64_t job)
    : host_(host),
      world_(host.world()),
      job_(job),
      alarm_(world_.clock()),
      output_(std::make_shared<OutputSpool>(world_, host.job_folder(job))) {}

HostJob::~HostJob() {
  if (exchange_ != nullptr) exchange_->close();
}

void HostJob::know_readers(const job::Spec& spec) {
  output_->set_readers({.user = spec.account(), .cluster_owner = spec.cluster_owner()});
}

void HostJob::on_directive(const cluster::Directive& directive) {
  const auto age = [](const auto& d) { return std::pair(d.epoch(), d.revision()); };
  if (end_ && directive.epoch() <= end_->epoch()) return;
  if (age(directive) <= age(directive_) || (next_ && age(directive) <= age(*next_))) {
    // Told again, since our answer was lost; an older epoch is of a coordinator that was replaced.
    if (directive.epoch() == directive_.epoch()) report_again();
    if (directive.epoch() < directive_.epoch())
      refuse_old("refused an old directive", directive.epoch());
    return;
  }
  if (end_) return;  // it ends here, whatever comes
  know_readers(directive.spec());
  next_ = std::make_unique<KeptDirective>(host_.alike(), directive);
  next_->fold();
  alarm_.ring();
}

// Of a coordinator that was replaced, or of somebody who says again what was said.
void HostJob::refuse_old(std::string_view what, uint64_t old) {
  if (std::exchange(refused_epoch_, old) == old) return;  // once of each
  TUTTI_LOG(warn, what, {{"job", job_}, {"epoch", old}, {"now", epoch()}});
}

void HostJob::on_end(const cluster::End& end) {
  if (end.epoch() < epoch()) refuse_old("refused an old end", end.epoch());
  if (end.epoch() < epoch() || (end_ && end.grace_ns() >= end_->grace_ns())) return;
  if (end_ && keeper_ != nullptr && !resetting_)
    stop(running(), Duration(end.grace_ns()), end.signal());
  end_ = std::make_unique<cluster::End>(end);
  alarm_.ring();
}

void HostJob::on_ack(const cluster::Ack& ack) {
  fruitless_ = 0;
  if (ack.released()) {
    released_ = true;
    alarm_.ring();
  }
  for (const cluster::Ack::Ended& ended : ack.ended()) {
    const RangeSet processes = set_from(ended.processes()).value_or(RangeSet());
    for (auto& [process, local] : processes_)
      if (local.phase == Phase::exited && local.epoch == ended.epoch() &&
          processes.contains(process))
        local.told = true;
  }
}

void HostJob::report_again() {
  report_due_ = true;
  confirmed_ = false;
  alarm_.ring();
}

void HostJob::on_signal(const RangeSet& processes, const cluster::Signal& signal) {
  if (keeper_ == nullptr) return;
  keeper::Signal message;
  message.set_number(signal.number());
  for (const auto& [process, local] : processes_) {
    if (local.phase != Phase::running) continue;
    if (!processes.empty() && !processes.contains(process)) continue;
    message.add_ranks(process);
    signalled_.change()[process] = {local.epoch, signal.number(), signal.by()};
  }
  if (message.ranks_size() != 0) keeper_->send(KeeperMessage::signal, message);
}

RangeSet HostJob::running() const {
  RangeSet running;
  for (const auto& [process, local] : processes_)
    if (local.phase != Phase::exited) running.add(process);
  return running;
}

bool HostJob::has_only(const RangeSet& processes, uint64_t epoch) const {
  if (adopting_ || next_ != nullptr || !lost_keeper_.get().empty()) return false;
  if (end_ != nullptr && keeper_ != nullptr)
    return false;  // which has not said that nothing is left
  if (end_ == nullptr && this->epoch() < epoch) return false;
  return running().plus(pending_).minus(processes).empty();
}

Instant HostJob::next_due() const {
  if (report_due_ || (next_ && !adopting_) || (end_ && !resetting_)) return Instant();
  Instant due =
      std::min({resend_at_, stalls_at_, spares_at_, pending_.empty() ? kNever : give_up_at_});
  if (health_ != nullptr) due = std::min(due, health_->due());
  if (exchange_ != nullptr) due = std::min(due, exchange_->due());
  return due;
}

// It waits for the alarm nearly all of its life: what waits for something else has frames of its
// own.
Task<void> HostJob::run() {
  while (!over_) {
    if (has_errand()) {
      const bool goes_on = co_await next_errand();
      if (!goes_on) break;
      continue;
    }
    do_what_is_due();
    if (has_errand()) continue;
    const Instant due = next_due();
    directive_.fold();
    auto woken = co_await alarm_.until(due);
    if (!woken) break;
  }
  co_await finish();
}

// What is here already must be known before anything is started beside it.
bool HostJob::has_errand() const {
  return end_ || own_ends_ || !lost_keeper_.get().empty() || (next_ && !adopting_) || mourned_ ||
         pages_unsure_ || (looks_ != nullptr && looks_->unwritten());
}

// False when it was cancelled, or the agent ends.
Task<bool> HostJob::next_errand() {
  if (end_) return end_everything();
  if (own_ends_) return log_own_ends();
  if (!lost_keeper_.get().empty()) return end_orphans_first();
  if (next_ && !adopting_) return obey();
  if (mourned_) return mourn();
  if (pages_unsure_) return catch_up_pages();
  return write_looks();
}

Task<bool> HostJob::end_orphans_first() {
  co_await end_orphans();
  co_return !Strand::current()->cancelled();
}

// Who cannot log ends: what the next agent starts must not have been told as ended.
bool HostJob::could_not_obey(const Error& why) {
  if (Strand::current()->cancelled()) return false;
  give_up_wanted(why);
  return true;
}

Task<bool> HostJob::write_looks() {
  co_await looks_->write();
  co_return true;
}

// A keeper holds the exits that it told. Of other ends only we know: the next agent must not start,
// in the same epoch, what we have told as ended.
Task<bool> HostJob::log_own_ends() {
  own_ends_ = false;
  in_log_ = true;
  auto logged = co_await log(record());
  co_return logged.has_value();
}

void HostJob::do_what_is_due() {
  if (!pending_.empty() && !adopting_) start_pending();
  const Instant now = world_.clock().now();
  if (give_up_at_ <= now && !pending_.empty()) give_up_stuck();
  if (stalls_at_ <= now) look_for_stalls();
  if (health_ != nullptr && health_->due() <= now) health_->look();
  if (!own_ends_ && (report_due_ || resend_at_ <= now)) send_report(!confirmed_ || fruitless_ > 0);
  if (exchange_ != nullptr && exchange_->due() <= now) tell_exchange();
  tend_spares();
}

Task<void> HostJob::finish() {
  if (keeper_ != nullptr) keeper_->set_user(nullptr);
  const Shield until_done;
  if (health_ != nullptr) co_await health_->end();
  co_await output_->finish(0s);
}

cluster::HostRecord HostJob::record() const {
  cluster::HostRecord record;
  record.set_job(job_);
  *record.mutable_directive() = directive();
  std::map<uint64_t, RangeSet> by_epoch;
  for (const auto& [process, local] : processes_) by_epoch[local.epoch].add(process);
  for (const auto& [epoch, processes] : by_epoch) {
    cluster::Row& row = *record.add_running();
    row.set_epoch(epoch);
    set_pairs(processes, row.mutable_processes());
  }
  for (const auto& [process, local] : processes_) {
    if (local.phase != Phase::exited || !local.own_end) continue;
    cluster::Row& row = *record.add_gone();
    row = local.row();
    row.set_epoch(local.epoch);
    set_pairs(RangeSet(process), row.mutable_processes());
  }
  record.set_keeper(keeper_ != nullptr ? keeper_->path() : lost_keeper_.get());
  if (end_) say_ending(record);
  return record;
}

// Gives whether its epoch is a new one.
bool HostJob::take_next() {
  cluster::Directive directive = next_->get();
  next_.reset();
  TUTTI_LOG(debug, "obeying",
            {{"job", job_}, {"epoch", directive.epoch()}, {"revision", directive.revision()}});
  const bool newer = directive.epoch() > epoch();
  // A coordinator that took over learns from us.
  if (directive.gang_epochs().empty())
    *directive.mutable_gang_epochs() = this->directive().gang_epochs();
  directive_ = KeptDirective(host_.alike(), std::move(directive));
  output_->set_last_epoch(epoch());
  in_log_ = false;
  return newer;
}

// False when this host runs nothing of the job's user.
bool HostJob::find_user() {
  auto who = host_.run_as(directive().spec().account());
  if (!who) {
    refuse(wanted_here(), who.error());
    report_again();
    return false;
  }
  run_as_ = *who ? std::make_unique<RunAs>(std::move(**who)) : nullptr;
  return true;
}

Task<Result<void>> HostJob::log(const cluster::HostRecord& record) {
  Task<Result<void>> logging = host_.log(record);
  directive_.fold();
  return logging;
}

Task<Result<void>> HostJob::log_wanted() {
  cluster::HostRecord kept = record();
  const RangeSet wanted = wanted_here();
  if (!wanted.empty()) {
    cluster::Row& row = *kept.add_running();
    row.set_epoch(epoch());
    set_pairs(wanted, row.mutable_processes());
  }
  in_log_ = true;
  return log(kept);
}

// All hosts of a job are in here at once: what it needs while it waits is small.
Task<bool> HostJob::obey() {
  RangeSet started;
  if (next_->epoch() == epoch()) started = set_from(directive().start()).value_or(RangeSet());
  const bool newer = take_next();
  if (!find_user()) co_return true;
  if (keeper_ == nullptr && !wanted_here().empty()) {
    directive_.fold();
    auto keeper = co_await host_.take_keeper();
    if (!keeper) co_return could_not_obey(keeper.error().context("start a keeper"));
    keeper_ = *keeper;
    keeper_->set_user(this);
  }
  auto logged = co_await log_wanted();
  if (!logged) co_return could_not_obey(logged.error());
  if (newer) keep_looks(leaving_here());  // before its survivors hear of it
  co_await change_pages(newer, std::move(started));
  if (directive().notice() != 0) give_notice();
  settle();
  start_pending();
  report_again();
  co_return true;
}

void HostJob::end_without_keeper(Local& local) {
  local.phase = Phase::exited;
  local.stopping = false;
  local.own_end = own_ends_ = true;
}

HostJob::Local& HostJob::gone_at_once(ProcessId process) {
  Local& local = processes_[process];
  local = Local{.epoch = epoch()};
  end_without_keeper(local);
  local.row().set_what(cluster::Row::EXITED);
  return local;
}

// Nothing begins any more, and what runs is told so: once, since a second signal often means haste.
void HostJob::give_notice() {
  for (const ProcessId process : wanted_here().members())
    gone_at_once(process).row().mutable_exit()->set_by_us(true);
  if (std::exchange(noticed_, true) || keeper_ == nullptr) return;
  keeper::Signal message;
  message.set_number(directive().notice());
  for (const auto& [process, local] : processes_)
    if (local.phase != Phase::exited && !local.stopping) message.add_ranks(process);
  if (message.ranks_size() != 0) keeper_->send(KeeperMessage::signal, message);
}

// This host cannot start what it should; another may.
void HostJob::give_up_wanted(const Error& why) {
  TUTTI_LOG(error, "cannot obey", {{"job", job_}, {"why", why.text()}});
  for (const ProcessId process : wanted_here().members()) {
    Local& local = gone_at_once(process);
    local.row().set_message(why.text());
    local.row().mutable_exit()->set_error(job::HOST_LOST);
  }
  report_again();
}

// To try again would be in vain.
void HostJob::refuse(const RangeSet& processes, const Error& why) {
  if (processes.empty()) return;
  TUTTI_LOG(warn, "refused to start", {{"job", job_}, {"why", why.text()}});
  for (const ProcessId process : processes.members()) {
    Local& local = gone_at_once(process);
    local.row().set_what(cluster::Row::NOT_STARTED);
    local.row().set_message(why.text());
    local.row().set_count(static_cast<uint64_t>(why.code()));
    local.row().mutable_exit()->set_error(job::NOT_STARTED);
  }
}

// What the directive has started here and does not run yet in its epoch.
RangeSet HostJob::wanted_here() const {
  const RangeSet here = processes_on(numbers(), directive().layout(), RangeSet(host_.node()));
  RangeSet wanted;
  const RangeSet start = set_from(directive().start()).value_or(RangeSet());
  for (const ProcessId process : start.common(here).members()) {
    const auto known = processes_.find(process);
    if (known == processes_.end() || known->second.epoch < epoch()) wanted.add(process);
  }
  return wanted;
}

RangeSet HostJob::leaving_here() const {
  const RangeSet here = processes_on(numbers(), directive().layout(), RangeSet(host_.node()));
  const RangeSet unwanted = set_from(directive().stop()).value_or(RangeSet());
  const RangeSet wanted = wanted_here();
  RangeSet leaving;
  for (const auto& [process, local] : processes_) {
    const bool elsewhere = !here.contains(process);
    const bool older = local.epoch < epoch();
    if (elsewhere || (older && (unwanted.contains(process) || wanted.contains(process))))
      leaving.add(process);
  }
  return leaving;
}

// Makes what is here what the directive wants.
void HostJob::settle() {
  pending_ = wanted_here();
  stop(leaving_here(), Duration(directive().spec().grace_ns()), SIGTERM);
  if (exchange_ != nullptr) exchange_->look_again();
}

// Of an epoch that pages have, or will have in a moment: then it is over before it began.
void HostJob::on_bereaved(const cluster::Bereaved& bereaved) {
  const auto processes = set_from(bereaved.processes());
  if (pages_ == nullptr || bereaved.epoch() != epoch() || !processes) return;
  ControlChange change{.abort = epoch(), .gone = ranks_of(*processes)};
  if (pages_->apply(change).empty()) return;
  mourned_ = std::make_unique<ControlChange>(std::move(change));
  alarm_.ring();
}

Task<bool> HostJob::mourn() {
  const ControlChange change = std::move(*mourned_);
  mourned_.reset();
  if (pages_ != nullptr && change.abort == epoch()) (void)co_await pages_->apply_fully(change);
  co_return true;
}

// Survivors learn of the epoch, and of whose death began it.
// Who is started again in this epoch is not dead in it; survivors of those before have lost it all
// the same. `started` is what earlier directives of the epoch had started.
Task<void> HostJob::change_pages(bool newer, RangeSet started) {
  if (pages_ == nullptr) co_return;
  ControlChange change;
  change.epoch = epoch();
  auto dead = set_from(directive().dead());
  if (!dead) co_return;
  const RangeSet start = set_from(directive().start()).value_or(RangeSet());
  const RangeSet back = dead->common(start).minus(started);
  if (!newer && back.empty()) co_return;
  change.clear = newer;
  change.ends_older = newer && !dead->empty();
  change.leaving = ranks_of(leaving_here());
  if (newer) change.gone = ranks_of(dead->minus(start));
  change.returned = ranks_of(back);
  if (!newer) change.revived = change.returned;
  (void)co_await pages_->apply_fully(std::move(change));
}

// The agent before us may have died when it had logged an epoch, and had not begun it in all pages.
Task<bool> HostJob::catch_up_pages() {
  pages_unsure_ = false;
  const RangeSet leaving = leaving_here();
  const auto is_behind = [&](const auto& entry) {
    const tutti_control_page* page =
        entry.second.phase == Phase::running && !leaving.contains(entry.first)
            ? pages_->find(entry.second.slot * kControlPageBytes)
            : nullptr;
    return page != nullptr && tutti_control_epoch(page) < epoch();
  };
  const bool behind = pages_ != nullptr && std::ranges::any_of(processes_, is_behind);
  if (pages_ != nullptr) pages_->rest();
  if (behind) co_await change_pages(true, RangeSet());
  co_return true;
}

void HostJob::stop(const RangeSet& processes, Duration grace, int number) {
  keeper::End message;
  for (auto& [process, local] : processes_) {
    if (!processes.contains(process) || local.phase == Phase::exited) continue;
    local.stopping = true;
    if (health_ != nullptr) health_->forget(process);
    message.add_ranks(process);
  }
  if (message.ranks_size() == 0 || keeper_ == nullptr) return;
  TUTTI_LOG(debug, "stopping", {{"job", job_}, {"processes", processes.text()}});
  keep_looks(processes);
  const Instant now = world_.clock().now();
  const bool long_time = grace >= kNever - now - kEndPatience;
  const Instant give_up = long_time ? kNever : now + grace + kEndPatience;
  give_up_at_ = give_up_at_ == kNever ? give_up : std::max(give_up_at_, give_up);
  message.set_grace_ns(to_ns(grace));
  message.set_number(number);
  keeper_->send(KeeperMessage::end, message);
}

// Nothing is started beside what is on its way out: both would want the same ports and memory.
void HostJob::start_pending() {
  const auto leaves = [](const auto& entry) {
    return entry.second.stopping && entry.second.phase != Phase::exited;
  };
  if (pending_.empty() || std::ranges::any_of(processes_, leaves)) return;
  give_up_at_ = kNever;
  if (keeper_ == nullptr) return lose_pending();
  const RangeSet processes = std::exchange(pending_, {});
  // The keeper holds the last exit of a number until it may be used again.
  std::erase_if(sequences_, [&](const auto& held) {
    if (!processes.contains(held.second)) return false;
    acknowledge(held.first);
    return true;
  });
  for (const ProcessId process : processes.members()) {
    const uint32_t slot = slot_for(process);
    const bool known = processes_.contains(process);
    Local& local = processes_[process];
    const uint32_t restarts = known ? local.restarts + 1 : 0;
    local = Local{};
    local.restarts = restarts;
    local.epoch = epoch();
    local.slot = slot;
  }
  send_spawn(processes);
}

// Their keeper ended before they began.
void HostJob::lose_pending() {
  const Error why = keeper_error_.value_or(Error(Code::unavailable, "there is none"));
  const RangeSet processes = std::exchange(pending_, {});
  refuse(processes, why.context("speak with its keeper"));
  report_again();
  if (why.code() == Code::unsupported) return;
  for (const ProcessId process : processes.members()) {
    Local& local = processes_[process];
    local.row().set_what(cluster::Row::EXITED);
    local.row().mutable_exit()->set_signal(SIGKILL);
    local.row().mutable_exit()->set_error(job::KILLED);
  }
}

// The keeper cannot say what it had: the log says what was started.
void HostJob::take_from_record() {
  for (const cluster::Row& row : recorded_.get().running)
    for (const ProcessId process : set_from(row.processes()).value_or(RangeSet()).members())
      processes_[process].epoch = row.epoch();
  take_gone_from_record();
}

// What the keeper has of them is of an earlier life.
void HostJob::take_gone_from_record() {
  for (const cluster::Row& row : std::exchange(recorded_.change().gone, {})) {
    for (const ProcessId process : set_from(row.processes()).value_or(RangeSet()).members()) {
      Local& local = processes_[process];
      if (row.epoch() < local.epoch ||
          (local.phase != Phase::starting && row.epoch() == local.epoch))
        continue;
      const uint32_t slot = local.slot;
      local = Local{.epoch = row.epoch(), .phase = Phase::exited, .slot = slot, .own_end = true};
      local.row() = row;
    }
  }
}

void HostJob::adopt(const cluster::HostRecord& record, KeeperSession* keeper) {
  directive_ = KeptDirective(host_.alike(), record.directive());
  output_->set_last_epoch(epoch());
  know_readers(record.directive().spec());
  // One who has gone meanwhile has what runs go on, and nothing begin.
  if (auto who = host_.run_as(directive().spec().account()); who && *who)
    run_as_ = std::make_unique<RunAs>(std::move(**who));
  recorded_.change() = {record.running(), record.gone()};
  in_log_ = true;
  noticed_ = directive().notice() != 0;
  report_again();
  if (record.ending()) {
    end_ = std::make_unique<cluster::End>();
    end_->set_job(job_);
    end_->set_epoch(record.last_epoch());
    end_->set_grace_ns(record.end_grace_ns());
    end_->set_signal(record.end_signal());
  }
  if (keeper != nullptr) {
    keeper_ = keeper;
    adopting_ = true;
    TUTTI_LOG(debug, "adopting", {{"job", job_}, {"keeper", keeper->path()}});
    keeper->set_user(this);
    keeper->expect_job(job_);
    keeper->send(KeeperMessage::list, keeper::List());
    return;
  }
  take_from_record();
  on_keeper_gone(Error(Code::unavailable, "it was gone when the agent came back"));
  lost_keeper_.change() = record.keeper();
}

}  // namespace tutti
