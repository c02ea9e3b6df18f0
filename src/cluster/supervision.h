// What to make of a process that ended: why it did, and whether it may be started again. Pure
// logic; an object belongs to one thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "cluster/cluster.pb.h"
#include "cluster/job.pb.h"
#include "world/processes.h"

namespace tutti {

// Why a process ended, as its exit tells. One that we asked to end has no error, whatever it
// returned then; that it hung, or its host was lost, we know from elsewhere. Evidence of memory:
// the kernel killed it, or something it had started, for memory. Shells return 128 + signal for
// what they ran, so such a code counts as the signal where that came from outside.
job::ErrorClass classify_exit(const Exit& exit, bool ended_by_us, bool out_of_memory_evidence);

// "user error", "out of memory"; for people.
std::string_view error_class_text(job::ErrorClass error);

// Restarts of one role for one class of errors.
class RestartBudget {
 public:
  explicit RestartBudget(const job::Budget& budget);

  // Takes one restart: how long to wait before it; nothing when they are used up. Each wait is
  // twice the one before, until a period has passed without a restart. Time must not go back.
  std::optional<Duration> ask(Instant now);
  // As if it had never been asked.
  void begin_anew();
  size_t taken() const { return taken_.size(); }
  // For whoever counts on elsewhere, by another clock: there the last was now. It says nothing of
  // time that passes, so that it need not be told again and again.
  cluster::TakenRestarts save() const;
  void restore(const cluster::TakenRestarts& taken, Instant now);

 private:
  void forget_older_than_period(Instant now);

  uint32_t restarts_;
  Duration period_;  // 0: for ever
  Duration first_delay_;
  Duration longest_delay_;
  Duration next_delay_;
  std::deque<Instant> taken_;  // within the period; only the latest when there is no limit
};

// A restart that is allowed.
struct Restart {
  Duration delay{};
  job::Scope scope = job::PROCESS;
  uint32_t number = 0;  // of a wider scope: the how-manieth
  uint32_t most = 0;    // and of how many
};

// Those of one role: by class, and of the scopes that it escalates to.
class RestartBudgets {
 public:
  explicit RestartBudgets(const job::Role& role);

  // Nothing for a class that is not restarted at all. When its restarts are used up, the next wider
  // scope that has one left; what is narrower begins anew then.
  std::optional<Restart> ask(job::ErrorClass error, Instant now);
  // Whether failures of that class are restarted, as long as there are restarts.
  bool restarts(job::ErrorClass error) const { return by_class_.contains(error); }
  bool escalates() const { return !wider_.empty(); }
  // All of the job is started again. How often this role was the reason stays known.
  void begin_anew();
  // Those of which some were taken.
  std::vector<cluster::TakenRestarts> taken() const;
  void restore(const cluster::TakenRestarts& taken, Instant now);

 private:
  struct Wider {
    job::Scope scope;
    uint32_t most;
    RestartBudget budget;
  };
  void begin_anew_below(job::Scope scope);

  std::map<job::ErrorClass, RestartBudget> by_class_;
  std::vector<Wider> wider_;  // the narrowest first
};

}  // namespace tutti
