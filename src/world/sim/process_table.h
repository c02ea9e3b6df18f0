// All processes of a simulated host, and the rules of parents, orphans and groups.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "world/processes.h"
#include "world/sim/process.h"

namespace tutti {

class ProcessTable {
 public:
  explicit ProcessTable(SimHost& host) : host_(host) {}
  ~ProcessTable() { stop(); }

  Result<pid_t> spawn(const SpawnOptions& options, pid_t parent);
  Result<void> signal(pid_t pid, int number);
  Result<void> signal_family(pid_t leader, int number);
  // It returns, or a signal ends it: at once, or when it is stuck no more.
  void end(pid_t pid, int code, int signal);
  void ended(pid_t pid, const Exit& exit);
  void stop();  // the host went down: all processes are gone, unheard

  // As the kernel does when memory runs out.
  Result<void> kill_for_memory(pid_t pid);
  uint64_t memory_kills() const { return memory_kills_; }
  // It waits in the kernel, as for a dead disk: what would end it does so only when it comes back.
  void set_stuck(pid_t pid, bool stuck);
  char state_of(pid_t pid) const;  // 'S', or 'D' when it is stuck; 0 when it has ended

  // The parent holds a Process for it: its exit status is kept.
  void set_owned(pid_t pid, bool owned);
  // Who hears of its end at once, while it is owned.
  void set_taker(pid_t pid, ExitTaker& taker) { entries_.at(pid).taker = &taker; }
  bool alive(pid_t pid) const;
  std::string name_of(pid_t pid) const;  // its command; "" when it has ended
  // What is known of a process that ended.
  Result<Exit> exit_of(pid_t pid) const;

  void become_subreaper(pid_t pid) {
    if (!is_subreaper(pid)) subreapers_.push_back(pid);
  }
  std::vector<pid_t> descendants(pid_t pid, std::span<const pid_t> spare) const;
  bool childless(pid_t pid) const;
  std::vector<pid_t> family(pid_t leader) const;
  // Their age; a host is charged for its processes together, and their memory is not counted.
  std::map<pid_t, Usage> usage_of(std::span<const pid_t> leaders) const;
  size_t reap_orphans(pid_t parent);

  Result<void> add_group(const std::string& name);
  bool has_group(const std::string& name) const { return groups_.contains(name); }
  void remove_group(const std::string& name);
  std::vector<pid_t> members(const std::string& group) const;

  // co_await gives Result<void> when the condition holds, looked at whenever a process ends.
  class Until;
  Until until_ended(pid_t pid);
  Until until_empty(const std::string& group);  // which outlives the wait

 private:
  struct Entry {
    std::unique_ptr<SimProcess> process;  // while it runs
    std::unique_ptr<Exit> exit;           // when it has ended, or will once it is stuck no more
    pid_t parent = 0;
    pid_t family = 0;                    // the number of who began its session
    const std::string* group = nullptr;  // of those in groups_, which has it while it has members
    ExitTaker* taker = nullptr;
    Instant began{};
    int parent_death_signal = 0;
    bool owned = false;
    bool stuck = false;
  };
  bool is_subreaper(pid_t pid) const {
    return std::ranges::find(subreapers_, pid) != subreapers_.end();
  }
  pid_t reaper_of(pid_t pid) const;
  void orphan_children(pid_t pid);

  SimHost& host_;
  std::map<pid_t, Entry> entries_;
  std::vector<pid_t> subreapers_;  // few
  std::set<std::string> groups_;
  List<Until> waiting_;
  pid_t next_pid_ = kFirstPid + 1;
  uint64_t memory_kills_ = 0;
};

class ProcessTable::Until final : public Waiter {
 public:
  Until(ProcessTable& table, pid_t pid, const std::string* group)
      : table_(table), pid_(pid), group_(group) {}

  bool await_ready() {
    cancelled_ = cancelled_already();
    return cancelled_ || holds();
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    table_.waiting_.push_back(*this);
  }
  Result<void> await_resume() const {
    if (cancelled_) return fail(cancelled_error());
    return {};
  }
  bool holds() const { return pid_ != 0 ? !table_.alive(pid_) : table_.members(*group_).empty(); }

 private:
  void on_cancel() override {
    cancelled_ = true;
    wake();
  }
  ProcessTable& table_;
  pid_t pid_;
  const std::string* group_;
  bool cancelled_ = false;
};

}  // namespace tutti
