// Processes as one process of a simulated host sees them. Programs are coroutines registered with
// Simulator::set_process under the name that arguments[0] gives.
#pragma once

#include "world/processes.h"

namespace tutti {

class SimHost;

class SimProcesses final : public Processes {
 public:
  SimProcesses(SimHost& host, pid_t pid, uid_t user = 0) : host_(host), pid_(pid), user_(user) {}

  Result<std::unique_ptr<Process>> spawn(const SpawnOptions& options) override;
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
  pid_t own_pid() const override { return pid_; }
  Result<uint64_t> memory_kills(const ProcessGroup* group) override;
  std::string name_of(pid_t pid) override;
  char state_of(pid_t pid) override;
  uid_t own_uid() const override { return user_; }

 private:
  SimHost& host_;
  pid_t pid_;
  uid_t user_;
};

}  // namespace tutti
