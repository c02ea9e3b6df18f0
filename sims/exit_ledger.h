// Every life of a worker, how it ended, and what was told of it. Outside of all hosts, so that it
// may compare: a life begins once; its end is told as it was, never before it came, and once: by
// its keeper to each agent, and by hosts to each life of a coordinator. Whoever's host stayed up
// has been told of in the end, and of a job that succeeded every process was heard to return 0, all
// of a gang that is started as a whole in one life of it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cluster/exit_watch.h"

namespace tutti::sims {

// One life of a worker: job, process, epoch.
struct Life {
  uint64_t job;
  uint32_t process;
  uint64_t epoch;
  auto operator<=>(const Life&) const = default;
};

class ExitLedger final : public ExitWatch {
 public:
  struct End {
    int code = 0;
    bool killed = false;     // by some signal
    bool with_host = false;  // it crashed: nobody can say more
  };

  // Is told what should not have been.
  explicit ExitLedger(std::function<void(std::string)> complain) : complain_(std::move(complain)) {}

  void began(const Life& life, uint32_t host, uint32_t boot);
  void ended(const Life& life, End end, int64_t now_ns);
  // From now on another agent is told of the ends on this host.
  void new_agent(uint32_t host);
  void noted(uint32_t node, uint64_t job, uint64_t epoch, uint32_t process,
             const cluster::Exit& exit) override;
  void heard(uint64_t job, const cluster::Row& row, const RangeSet& processes) override;
  void answered(uint64_t coordinator, uint64_t job, const cluster::Row& row,
                const RangeSet& processes) override;
  // Every end on a host that has not crashed since was told. What ended after its job was left
  // behind, and its host has said so.
  using BootOf = std::function<uint32_t(uint32_t host)>;
  using OverAt = std::function<int64_t(uint64_t job)>;
  void check_noted(const BootOf& boot_of, const OverAt& over_at_ns);
  // Of a job that succeeded, one of the processes that it waited for.
  void check_succeeded(uint64_t job, uint32_t process);
  // Of such a job, all of a gang that is always started as a whole.
  void check_one_life(uint64_t job, const RangeSet& gang);

 private:
  // The last epoch before this one in which it was heard to return 0; 0 for none.
  uint64_t returned_before(uint64_t job, uint32_t process, uint64_t epoch) const;
  // The first epoch after this one in which it was started; the largest number for none.
  uint64_t begun_after(uint64_t job, uint32_t process, uint64_t epoch) const;

  // There are a million of them at a time, and each is told of by one or two.
  struct Story {
    bool began = false;
    bool ended = false;
    bool heard = false;  // by any coordinator
    uint32_t host = 0;
    uint32_t boot = 0;
    End end;
    int64_t ended_at_ns = 0;
    std::vector<uint64_t> agents;        // that noted it
    std::vector<uint64_t> coordinators;  // that answered
  };
  void compare(const Life& life, const Story& story, const cluster::Exit& told);

  std::function<void(std::string)> complain_;
  std::map<Life, Story> stories_;
  std::vector<uint32_t> agents_;  // of each host, so far
};

}  // namespace tutti::sims
