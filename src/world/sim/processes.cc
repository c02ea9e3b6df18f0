#include "world/sim/processes.h"

#include <cerrno>
#include <csignal>

#include "world/sim/process_table.h"
#include "world/sim/simulator.h"

namespace tutti {

namespace {

class SimChild final : public Process {
 public:
  SimChild(ProcessTable& table, pid_t pid) : table_(table), pid_(pid) {
    table_.set_owned(pid_, true);
  }
  ~SimChild() override { table_.set_owned(pid_, false); }

  pid_t pid() const override { return pid_; }
  Task<Result<Exit>> wait() override {
    CO_TRY_DO(co_await table_.until_ended(pid_));
    co_return table_.exit_of(pid_);
  }
  void tell_exit(ExitTaker& taker, Scope& scope) override {
    if (!table_.alive(pid_)) return Process::tell_exit(taker, scope);
    table_.set_taker(pid_, taker);
  }
  Result<void> signal(int number) override { return table_.signal(pid_, number); }
  Result<void> signal_family(int number) override { return table_.signal_family(pid_, number); }

 private:
  ProcessTable& table_;
  pid_t pid_;
};

class SimGroup final : public ProcessGroup {
 public:
  SimGroup(ProcessTable& table, std::string name) : table_(table), name_(std::move(name)) {}
  ~SimGroup() override { table_.remove_group(name_); }

  const std::string& name() const override { return name_; }
  bool as_new() override { return !killed_ && table_.members(name_).empty(); }
  Result<void> kill() override {
    killed_ = true;
    for (const pid_t pid : table_.members(name_)) TRY_DO(table_.signal(pid, SIGKILL));
    return {};
  }
  Task<Result<void>> emptied() override {
    auto until = table_.until_empty(name_);
    co_return co_await until;
  }
  Result<std::vector<pid_t>> members() override { return table_.members(name_); }

 private:
  ProcessTable& table_;
  std::string name_;
  bool killed_ = false;
};

}  // namespace

Result<std::unique_ptr<Process>> SimProcesses::spawn(const SpawnOptions& options) {
  TRY(const pid_t pid, host_.process_table().spawn(options, pid_));
  return std::make_unique<SimChild>(host_.process_table(), pid);
}

Result<Processes::Pipe> SimProcesses::pipe() {
  SimStream::Pair ends = SimStream::pipe(host_);
  Handle writer = host_.handles().add({.stream = std::move(ends.a)});
  Handle reader = host_.handles().add({.stream = std::move(ends.b)});
  return Pipe{std::move(reader), std::move(writer)};
}

Result<Processes::Terminal> SimProcesses::terminal(unsigned, unsigned) {
  SimStream::Pair ends = SimStream::connect(host_, host_);
  Handle ours = host_.handles().add({.stream = std::move(ends.a)});
  Handle theirs = host_.handles().add({.stream = std::move(ends.b)});
  return Terminal{std::move(ours), std::move(theirs)};
}

Result<void> SimProcesses::become_subreaper() {
  host_.process_table().become_subreaper(pid_);
  return {};
}

Result<std::vector<pid_t>> SimProcesses::descendants(std::span<const pid_t> spare) {
  return host_.process_table().descendants(pid_, spare);
}

bool SimProcesses::childless() { return host_.process_table().childless(pid_); }

bool SimProcesses::family_lives(pid_t leader) {
  return !host_.process_table().family(leader).empty();
}

Result<void> SimProcesses::signal(pid_t pid, int number) {
  return host_.process_table().signal(pid, number);
}

Result<uint64_t> SimProcesses::memory_kills(const ProcessGroup*) {
  return host_.process_table().memory_kills();
}

char SimProcesses::state_of(pid_t pid) { return host_.process_table().state_of(pid); }

std::string SimProcesses::name_of(pid_t pid) { return host_.process_table().name_of(pid); }

std::map<pid_t, Usage> SimProcesses::usage_of(std::span<const pid_t> leaders) {
  return host_.process_table().usage_of(leaders);
}

size_t SimProcesses::reap_orphans() { return host_.process_table().reap_orphans(pid_); }

Result<std::unique_ptr<ProcessGroup>> SimProcesses::create_group(std::string name) {
  TRY_DO(host_.process_table().add_group(name));
  return std::make_unique<SimGroup>(host_.process_table(), std::move(name));
}

Result<std::unique_ptr<ProcessGroup>> SimProcesses::open_group(std::string name) {
  if (!host_.process_table().has_group(name)) return fail_errno(ENOENT, "group {}", name);
  return std::make_unique<SimGroup>(host_.process_table(), std::move(name));
}

}  // namespace tutti
