// The health of a job's services on this host (docs/jobs.md, "Health"): each is looked at again and
// again, from its start to its end. Belongs to one strand.
//
// Ports are asked from here. Commands are run by the owner, where the job's processes are: they are
// the job's own, and must go with it.
#pragma once

#include <map>
#include <string>

#include "cluster/job.pb.h"
#include "cluster/job_layout.h"
#include "world/scope.h"
#include "world/world.h"

namespace tutti {

class HealthChecks {
 public:
  class Owner {
   public:
    // on_command() is to be told how it ended, also when it was killed or could not begin.
    virtual void run_check(ProcessId process) = 0;
    virtual void kill_check(ProcessId process) = 0;
    // Somebody's health is another, or due() is.
    virtual void on_health() = 0;

   protected:
    ~Owner() = default;
  };

  HealthChecks(World& world, Owner& owner) : world_(world), owner_(owner) {}

  // A process has just started, or was found by an agent that did.
  void watch(ProcessId process, const job::Health& health);
  void forget(ProcessId process);
  // Of a look by command; "" is well.
  void on_command(ProcessId process, std::string why_not);

  Instant due() const;
  // Begins the looks that are due, and ends those that take too long.
  void look();

  // It was well once: who needs it may start.
  bool well(ProcessId process) const;
  // Why it is to be ended and started again: it was not well too often. "" otherwise.
  std::string ill(ProcessId process) const;
  // "well", "not well yet: connection refused", "not well: …"; "" for one that is not watched.
  std::string text(ProcessId process) const;

  // Ends all looks. Nothing of them runs when it returns.
  Task<void> end();

 private:
  struct Watched {
    job::Health health;
    uint64_t life = 0;  // another one for each watch()
    Instant must_be_well;
    Instant next_look;
    Instant late = kNever;  // the command that is under way, if there is one
    Duration pause;
    uint32_t failures = 0;  // in a row, of those that count
    bool asking = false;    // its port
    bool commanding = false;
    bool well = false;
    bool ill = false;
    std::string why_not;  // of the last look; "" is well
  };
  void begin_look(ProcessId process, Watched& watched);
  void looked(Watched& watched, std::string why_not);
  Task<void> ask(ProcessId process, uint64_t life, job::Health health);
  const Watched* find(ProcessId process) const;

  World& world_;
  Owner& owner_;
  std::map<ProcessId, Watched> watched_;
  uint64_t next_life_ = 1;
  Scope strands_{Scope::Root{}};
};

}  // namespace tutti
