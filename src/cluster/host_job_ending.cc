// How a job ends on a host: everything is asked to end, verified gone, and told, in that order.
// What cannot be ended is told by name, again and again, until it is gone by itself: so long the
// head gives its slots to nobody.
#include <algorithm>

#include "base/log.h"
#include "cluster/end_descendants.h"
#include "cluster/host_job.h"

namespace tutti {
namespace {

// After everything has ended, for pipes that somebody else holds.
constexpr Duration kOutputPatience = 500ms;
// Between tries to end what could not be ended.
constexpr Duration kLeftoverPause = 5s;
// Clearly longer than a keeper is busy with what does not end, in looks of a second each.
constexpr int kSilentLooksInEnd = 20;
// Until the head has heard that it is gone.
constexpr Duration kReleasePause = 1s;

}  // namespace

// A keeper that says nothing for long is no help: what it has is ended from outside. Before that,
// or when we did not run ourselves, what we know of its ranks may be old.
bool HostJob::keeper_owes_word() {
  if (keeper_ == nullptr) return false;
  keeper_->give_up_after(kSilentLooksInEnd);
  if (keeper_ == nullptr || keeper_->is_heard()) return false;
  // Not in step with the looks, whose words are answered a moment after.
  give_up_at_ = world_.clock().now() + kKeeperLook * 3 / 2;
  return true;
}

// Those who were told to end do not, and what should take their place cannot be started. Who has no
// number yet is none of them: the keeper has still to say what became of its start.
void HostJob::give_up_stuck() {
  give_up_at_ = kNever;
  if (keeper_owes_word() || keeper_ == nullptr) return;
  std::string stuck;
  bool unanswered = false;
  for (const auto& [process, local] : processes_) {
    if (!local.stopping || local.phase == Phase::exited) continue;
    unanswered = unanswered || local.pid == 0;
    if (local.pid == 0) continue;
    stuck += (stuck.empty() ? "" : ", ") + name_process(world_.processes(), local.pid);
  }
  if (stuck.empty() && unanswered) give_up_at_ = world_.clock().now() + kEndPatience;
  if (stuck.empty()) return;
  TUTTI_LOG(error, "cannot be ended", {{"job", job_}, {"processes", stuck}});
  const RangeSet waiting = std::exchange(pending_, {});
  for (const ProcessId process : waiting.members()) {
    Local& local = processes_[process];
    local = Local{.epoch = epoch(), .slot = local.slot};
    end_without_keeper(local);
    local.row().set_what(cluster::Row::NOT_STARTED);
    local.row().set_message(
        fmt::format("processes {} of before do not end even when killed", stuck));
    local.row().set_count(static_cast<uint64_t>(Code::unavailable));
    local.row().mutable_exit()->set_error(job::NOT_STARTED);
  }
  report_again();
}

// False when the agent ends before that.
Task<bool> HostJob::wait_for_ends() {
  while (adopting_) {
    auto woken = co_await alarm_.until(kNever);
    if (!woken) co_return false;
  }
  if (keeper_ == nullptr || running().empty()) co_return true;
  stop(running(), Duration(end_->grace_ns()), end_->signal());
  while (keeper_ != nullptr && !running().empty()) {
    if (world_.clock().now() >= give_up_at_ && !keeper_owes_word()) break;
    auto woken = co_await alarm_.until(give_up_at_);
    if (!woken) co_return false;
  }
  co_return true;
}

// The keeper's word that nothing is left; what is left, else.
Task<bool> HostJob::reset_keeper() {
  resetting_ = true;
  reset_answer_.reset();
  keeper_->send(KeeperMessage::reset, keeper::Reset());
  while (keeper_ != nullptr && !reset_answer_) {
    auto woken = co_await alarm_.until(kNever);
    if (!woken) co_return false;
  }
  left_behind_.clear();
  if (reset_answer_ != nullptr) left_behind_.change() = *reset_answer_;
  co_return true;
}

void HostJob::report_end(bool to_head) {
  cluster::JobReport report;
  report.set_job(job_);
  cluster::Row& row = *report.add_rows();
  row.set_what(left_behind().empty() ? cluster::Row::ENDED : cluster::Row::LEFT_BEHIND);
  row.set_message(left_behind());
  set_pairs(RangeSet(host_.node()), row.mutable_hosts());
  host_.report(directive().coordinator(), report);
  if (to_head) host_.report_to_head(report);
}

// Ranks die with their keeper, but what they started may not. Nothing is started beside it, and the
// job has not ended here, until it is gone.
Task<void> HostJob::end_orphans() {
  while (!lost_keeper_.get().empty()) {
    auto ended = co_await host_.end_orphans(lost_keeper_.get());
    if (ended) {
      lost_keeper_.clear();
      left_behind_.clear();
      break;
    }
    if (ended.error().code() == Code::cancelled) break;
    left_behind_.change() = ended.error().message();
    TUTTI_LOG(error, "a dead keeper left something", {{"job", job_}, {"what", left_behind()}});
    if (end_) report_end(true);
    was_left_ = was_left_ || end_ != nullptr;
    auto slept = co_await world_.clock().sleep(kLeftoverPause);
    if (!slept) break;
  }
}

// The head holds slots for what was left behind: it must hear that this is over.
Task<bool> HostJob::wait_for_release() {
  while (!released_) {
    report_end(true);
    auto woken = co_await alarm_.until(world_.clock().now() + kReleasePause);
    if (!woken) co_return false;
  }
  co_return true;
}

// Once the keeper has forgotten the job, nobody may take it for one that never began. All hosts of
// a job write this at once: what the log has already is not said again.
Task<Result<void>> HostJob::log_ending() {
  cluster::HostRecord ending;
  if (!in_log_) ending = record();
  ending.set_job(job_);
  say_ending(ending);
  return log(ending);
}

void HostJob::say_ending(cluster::HostRecord& record) const {
  record.set_ending(true);
  record.set_end_grace_ns(end_->grace_ns());
  record.set_end_signal(end_->signal());
  record.set_last_epoch(end_->epoch());
}

void HostJob::log_gone() {
  cluster::HostRecord gone;
  gone.set_job(job_);
  gone.set_ended(true);
  gone.set_last_epoch(end_->epoch());
  host_.log_soon(gone);
}

// All hosts of a job wait for their logs at once: what comes after has a frame of its own.
Task<bool> HostJob::end_everything() {
  pending_ = RangeSet();
  next_.reset();
  if (epoch() != 0) {
    auto logged = co_await log_ending();
    if (!logged) co_return false;
  }
  co_await end_for_good();
  co_return over_;
}

Task<void> HostJob::end_for_good() {
  const bool waited = co_await wait_for_ends();
  if (!waited) co_return;
  co_await end_orphans();
  if (!lost_keeper_.get().empty()) co_return;
  const bool is_empty = keeper_ != nullptr && keeper_->is_empty();
  if (is_empty) keeper_->forget_job();
  while (keeper_ != nullptr && !is_empty) {
    const bool answered = co_await reset_keeper();
    if (!answered) co_return;
    if (left_behind().empty()) break;
    if (!std::exchange(was_left_, true)) {
      TUTTI_LOG(error, "left behind", {{"job", job_}, {"what", left_behind()}});
      co_await output_->finish(kOutputPatience);
    }
    report_end(true);
    const Instant again = world_.clock().now() + kLeftoverPause;
    auto slept = co_await world_.clock().sleep_until(again);
    if (!slept) co_return;
  }
  if (!was_left_) co_await output_->finish(kOutputPatience);
  if (looks_ != nullptr && looks_->unwritten()) co_await looks_->write();
  if (Strand::current()->cancelled()) co_return;
  if (keeper_ != nullptr) {
    keeper_->set_user(nullptr);
    host_.give_keeper_back(*std::exchange(keeper_, nullptr));
  }
  left_behind_.clear();
  if (was_left_) {
    const bool released = co_await wait_for_release();
    if (!released) co_return;
  }
  log_gone();
  report_end(false);
  over_ = true;
}

}  // namespace tutti
