#include "cluster/supervision.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "cluster/job_limits.h"

namespace tutti {
namespace {

// Shells add it to the signal that killed what they ran.
constexpr int kShellSignalBase = 128;

// Sent by people, launchers and kernels, and never by a program's own mistake.
bool means_end_from_outside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
         signal == SIGQUIT;
}

// Raised by what the program itself did, the limits and timers it set among that.
bool is_own_fault(int signal) {
  switch (signal) {
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
    case SIGPIPE:
    case SIGALRM:
    case SIGVTALRM:
    case SIGPROF:
    case SIGXCPU:
    case SIGXFSZ: return true;
    default: return false;
  }
}

}  // namespace

job::ErrorClass classify_exit(const Exit& exit, bool ended_by_us, bool out_of_memory_evidence) {
  if (exit.ok() || ended_by_us) return job::NONE;
  if (out_of_memory_evidence) return job::OUT_OF_MEMORY;
  if (exit.signal != 0) return is_own_fault(exit.signal) ? job::USER_ERROR : job::KILLED;
  return means_end_from_outside(exit.code - kShellSignalBase) ? job::KILLED : job::USER_ERROR;
}

std::string_view error_class_text(job::ErrorClass error) {
  switch (error) {
    case job::NONE: return "no error";
    case job::USER_ERROR: return "user error";
    case job::KILLED: return "killed";
    case job::OUT_OF_MEMORY: return "out of memory";
    case job::HOST_LOST: return "host lost";
    case job::HANG: return "hang";
    case job::NOT_STARTED: return "not started";
    default: return "unknown error";  // of a newer version
  }
}

RestartBudget::RestartBudget(const job::Budget& budget)
    : restarts_(budget.restarts()),
      period_(budget.period_ns()),
      first_delay_(budget.delay_ns()),
      longest_delay_(budget.longest_delay_ns()),
      next_delay_(first_delay_) {}

std::optional<Duration> RestartBudget::ask(Instant now) {
  forget_older_than_period(now);
  if (taken_.empty()) next_delay_ = first_delay_;
  if (restarts_ == kAlwaysRestart) {
    taken_.clear();
  } else if (taken_.size() >= restarts_) {
    return std::nullopt;
  }
  taken_.push_back(now);
  return std::exchange(next_delay_, std::min(next_delay_ * 2, longest_delay_));
}

void RestartBudget::begin_anew() {
  taken_.clear();
  next_delay_ = first_delay_;
}

cluster::TakenRestarts RestartBudget::save() const {
  cluster::TakenRestarts saved;
  for (const Instant taken : taken_) saved.add_earlier_ns(to_ns(taken_.back() - taken));
  saved.set_next_delay_ns(to_ns(next_delay_));
  return saved;
}

void RestartBudget::restore(const cluster::TakenRestarts& taken, Instant now) {
  taken_.clear();
  for (const int64_t earlier_ns : taken.earlier_ns())
    taken_.push_back(now - std::max(Duration(earlier_ns), Duration::zero()));
  std::ranges::sort(taken_);
  next_delay_ = std::clamp(Duration(taken.next_delay_ns()), first_delay_,
                           std::max(first_delay_, longest_delay_));
}

void RestartBudget::forget_older_than_period(Instant now) {
  if (period_ == 0s) return;
  while (!taken_.empty() && now - taken_.front() >= period_) taken_.pop_front();
}

RestartBudgets::RestartBudgets(const job::Role& role) {
  for (const job::Budget& budget : role.budgets())
    by_class_.emplace(budget.error(), RestartBudget(budget));
  if (role.budgets().empty()) return;
  for (const job::Escalation& escalation : role.escalate()) {
    job::Budget budget = role.budgets(0);  // for its pace
    budget.set_restarts(escalation.restarts());
    wider_.push_back({escalation.scope(), escalation.restarts(), RestartBudget(budget)});
  }
  std::ranges::sort(wider_, {}, &Wider::scope);
}

std::optional<Restart> RestartBudgets::ask(job::ErrorClass error, Instant now) {
  const auto found = by_class_.find(error);
  if (found == by_class_.end()) return std::nullopt;
  if (const auto delay = found->second.ask(now)) return Restart{.delay = *delay};
  for (Wider& wider : wider_) {
    const auto delay = wider.budget.ask(now);
    if (!delay) continue;
    begin_anew_below(wider.scope);
    const auto number = static_cast<uint32_t>(wider.budget.taken());
    return Restart{.delay = *delay, .scope = wider.scope, .number = number, .most = wider.most};
  }
  return std::nullopt;
}

std::vector<cluster::TakenRestarts> RestartBudgets::taken() const {
  std::vector<cluster::TakenRestarts> all;
  for (const auto& [error, budget] : by_class_) {
    if (budget.taken() == 0) continue;
    all.push_back(budget.save());
    all.back().set_error(error);
  }
  for (const Wider& wider : wider_) {
    if (wider.budget.taken() == 0) continue;
    all.push_back(wider.budget.save());
    all.back().set_scope(wider.scope);
  }
  return all;
}

void RestartBudgets::restore(const cluster::TakenRestarts& taken, Instant now) {
  const auto of_class = by_class_.find(taken.error());
  if (taken.scope() == job::PROCESS && of_class != by_class_.end())
    of_class->second.restore(taken, now);
  for (Wider& wider : wider_)
    if (wider.scope == taken.scope()) wider.budget.restore(taken, now);
}

void RestartBudgets::begin_anew() { begin_anew_below(job::JOB); }

void RestartBudgets::begin_anew_below(job::Scope scope) {
  for (auto& [error, budget] : by_class_) budget.begin_anew();
  for (Wider& wider : wider_)
    if (wider.scope < scope) wider.budget.begin_anew();
}

}  // namespace tutti
