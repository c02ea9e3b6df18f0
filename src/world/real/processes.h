// Processes of this Linux host. Of the loop's thread.
//
// A child is known by its pidfd, so no signal ever reaches a stranger that got its number. Its exit
// status stays with the kernel until it is asked for.
//
// A child begins in our memory, so the peak memory the kernel reports for it is never below ours at
// the moment it was started: keep what starts processes small.
#pragma once

#include <map>
#include <memory>

#include "world/processes.h"
#include "world/real/groups.h"
#include "world/real/helper_thread.h"
#include "world/real/loop.h"
#include "world/real/memory_kills.h"
#include "world/real/process_tree.h"
#include "world/real/spawn.h"

namespace tutti {

class RealProcess;

class RealProcesses final : public Processes {
 public:
  explicit RealProcesses(Loop& loop, Spawner::Way way = Spawner::Way::best);
  ~RealProcesses() override;  // every Process must be gone

  Result<std::unique_ptr<Process>> spawn(const SpawnOptions& options) override;
  Spawns spawn_all(std::span<const SpawnOptions* const> all) override;
  Result<Pipe> pipe() override;
  Result<Terminal> terminal(unsigned columns, unsigned rows) override;
  Result<void> become_subreaper() override;
  Result<std::vector<pid_t>> descendants(std::span<const pid_t> spare = {}) override;
  bool childless() override;
  Result<void> signal(pid_t pid, int number) override;
  bool family_lives(pid_t leader) override;
  std::map<pid_t, Usage> usage_of(std::span<const pid_t> leaders) override;
  size_t reap_orphans() override;
  Result<std::unique_ptr<ProcessGroup>> create_group(std::string name) override;
  Result<std::unique_ptr<ProcessGroup>> open_group(std::string name) override;
  size_t sweep_groups() override { return groups_.sweep(); }
  pid_t own_pid() const override;
  Result<uint64_t> memory_kills(const ProcessGroup* group) override {
    return memory_kills_.count(group);
  }
  std::string name_of(pid_t pid) override;
  char state_of(pid_t pid) override;
  uid_t own_uid() const override;

 private:
  friend RealProcess;
  // The second of two that start processes. It lives as long as we do: the kernel takes the end of
  // the thread that started a process for the end of its parent.
  struct Second {
    explicit Second(Spawner::Way way) : spawner(way) {}
    Spawner spawner;
    HelperThread thread;
  };
  Result<void> begin(RealProcess& process, Spawner& spawner, const SpawnOptions& options);

  Loop& loop_;
  Spawner::Way way_;
  Spawner spawner_;
  std::unique_ptr<Second> second_;  // from the first time that there are many
  Groups groups_;
  MemoryKills memory_kills_;
  ProcessTree tree_;
  std::map<pid_t, RealProcess*> children_;  // those whose exit status we have not collected
};

}  // namespace tutti
