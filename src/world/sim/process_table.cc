#include "world/sim/process_table.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "world/sim/simulator.h"

namespace tutti {

namespace {

constexpr size_t kMostProcesses = 4096;  // per host
constexpr int kMostSignals = 64;

bool ignored_by_default(int number) {
  return number == SIGCHLD || number == SIGURG || number == SIGWINCH || number == SIGCONT;
}

}  // namespace

Result<pid_t> ProcessTable::spawn(const SpawnOptions& options, pid_t parent) {
  if (options.arguments.empty()) return fail(Code::invalid, "spawn needs a command");
  const std::string& command = options.arguments[0];
  if (host_.simulator().find_process(command) == nullptr)
    return fail(Code::not_found, "{}: no such command", command);
  if (entries_.size() >= kMostProcesses) return fail_errno(EAGAIN, "spawn {}", command);
  for (const SpawnOptions::Inherit& inherit : options.inherit)
    TRY_DO(host_.handles().find(*inherit.handle));
  auto mine = entries_.find(parent);
  const uid_t inherited = mine == entries_.end() ? 0 : mine->second.process->user();
  const std::string* group = mine == entries_.end() ? nullptr : mine->second.group;
  if (options.group != nullptr) group = &*groups_.insert(options.group->name()).first;
  host_.charge(host_.simulator().costs().spawn_ns);
  const pid_t pid = next_pid_++;
  Entry& entry = entries_[pid];
  entry.process =
      std::make_unique<SimProcess>(host_, pid, options, options.user.value_or(inherited));
  entry.parent = parent;
  entry.began = host_.clock().now();
  const bool inherits_family = mine != entries_.end() && !options.new_session;
  entry.family = inherits_family ? mine->second.family : pid;
  entry.group = group;
  entry.parent_death_signal = options.parent_death_signal;
  entry.process->life_.begin();
  return pid;
}

Result<void> ProcessTable::signal(pid_t pid, int number) {
  auto found = entries_.find(pid);
  if (found == entries_.end() || found->second.process == nullptr)
    return fail_errno(ESRCH, "signal {} to process {}", number, pid);
  if (number < 0 || number >= kMostSignals) return fail_errno(EINVAL, "signal {}", number);
  if (number == SIGSTOP || number == SIGTSTP)
    return fail(Code::unsupported, "simulated processes cannot be stopped; pause their host");
  SimProcess& process = *found->second.process;
  const bool caught = number != SIGKILL && (process.caught_ >> number & 1) != 0;
  if (caught) {
    process.signals().try_send(number);
  } else if (number != 0 && !ignored_by_default(number)) {
    end(pid, 0, number);
  }
  return {};
}

void ProcessTable::end(pid_t pid, int code, int signal) {
  Entry& entry = entries_.at(pid);
  if (!entry.stuck) return entry.process->life_.end(code, signal);
  if (entry.exit == nullptr)
    entry.exit = std::make_unique<Exit>(Exit{.code = code, .signal = signal});
}

Result<void> ProcessTable::kill_for_memory(pid_t pid) {
  TRY_DO(signal(pid, SIGKILL));
  ++memory_kills_;
  return {};
}

void ProcessTable::set_stuck(pid_t pid, bool stuck) {
  const auto found = entries_.find(pid);
  if (found == entries_.end() || found->second.process == nullptr) return;
  Entry& entry = found->second;
  entry.stuck = stuck;
  if (!stuck && entry.exit != nullptr)
    entry.process->life_.end(entry.exit->code, entry.exit->signal);
}

char ProcessTable::state_of(pid_t pid) const {
  const auto found = entries_.find(pid);
  if (found == entries_.end() || found->second.process == nullptr) return 0;
  return found->second.stuck ? 'D' : 'S';
}

Result<void> ProcessTable::signal_family(pid_t leader, int number) {
  if (!alive(leader)) return fail_errno(ESRCH, "signal {} to process {}", number, leader);
  for (const pid_t pid : family(leader)) TRY_DO(signal(pid, number));
  return {};
}

void ProcessTable::ended(pid_t pid, const Exit& exit) {
  Entry& entry = entries_.at(pid);
  ExitTaker* taker = entry.taker;
  entry.exit = std::make_unique<Exit>(exit);
  std::unique_ptr<SimProcess> process = std::move(entry.process);
  process.reset();
  std::erase(subreapers_, pid);
  orphan_children(pid);
  if (!entry.owned && entry.parent == kFirstPid && !is_subreaper(kFirstPid)) entries_.erase(pid);
  for (Until* waiting = waiting_.first(); waiting != nullptr;) {
    Until* next = waiting_.next(*waiting);
    if (waiting->holds()) waiting->wake();
    waiting = next;
  }
  if (taker != nullptr) taker->on_exit(exit);
}

pid_t ProcessTable::reaper_of(pid_t pid) const {
  for (auto found = entries_.find(pid); found != entries_.end();) {
    const pid_t parent = found->second.parent;
    if (is_subreaper(parent)) return parent;
    found = entries_.find(parent);
  }
  return kFirstPid;
}

void ProcessTable::orphan_children(pid_t pid) {
  const pid_t reaper = reaper_of(pid);
  std::vector<pid_t> lost;
  for (auto& [child, entry] : entries_) {
    if (entry.parent != pid) continue;
    entry.parent = reaper;
    entry.owned = false;
    lost.push_back(child);
  }
  for (const pid_t child : lost) {
    Entry& entry = entries_.at(child);
    const bool init_reaps = reaper == kFirstPid && !is_subreaper(kFirstPid);
    if (entry.process == nullptr && init_reaps) {
      entries_.erase(child);
    } else if (entry.process != nullptr && entry.parent_death_signal != 0) {
      auto sent = signal(child, entry.parent_death_signal);
      TUTTI_ASSERT(sent, "a running child can be signalled");
    }
  }
}

void ProcessTable::stop() {
  while (!entries_.empty()) {
    std::unique_ptr<SimProcess> process = std::move(entries_.begin()->second.process);
    entries_.erase(entries_.begin());
    process.reset();
  }
  subreapers_.clear();
  groups_.clear();
}

void ProcessTable::set_owned(pid_t pid, bool owned) {
  auto found = entries_.find(pid);
  if (found == entries_.end()) return;
  found->second.owned = owned;
  if (!owned) found->second.taker = nullptr;
  if (!owned && found->second.process == nullptr) entries_.erase(found);
}

bool ProcessTable::alive(pid_t pid) const {
  auto found = entries_.find(pid);
  return found != entries_.end() && found->second.process != nullptr;
}

std::string ProcessTable::name_of(pid_t pid) const {
  auto found = entries_.find(pid);
  if (found == entries_.end() || found->second.process == nullptr) return "";
  return found->second.process->command();
}

Result<Exit> ProcessTable::exit_of(pid_t pid) const {
  auto found = entries_.find(pid);
  if (found == entries_.end() || found->second.process != nullptr)
    return fail_errno(ECHILD, "wait for process {}", pid);
  return *found->second.exit;
}

std::vector<pid_t> ProcessTable::descendants(pid_t pid, std::span<const pid_t> spare) const {
  std::vector<pid_t> found = {pid};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const auto& [child, entry] : entries_)
      if (entry.parent == found[i] && entry.process != nullptr &&
          std::ranges::find(spare, child) == spare.end())
        found.push_back(child);
  }
  found.erase(found.begin());
  return found;
}

bool ProcessTable::childless(pid_t pid) const {
  return std::ranges::none_of(entries_, [pid](const auto& item) {
    const Entry& entry = item.second;
    return entry.parent == pid && (entry.process != nullptr || !entry.owned);
  });
}

std::vector<pid_t> ProcessTable::family(pid_t leader) const {
  std::vector<pid_t> pids;
  for (const auto& [pid, entry] : entries_)
    if (entry.process != nullptr && entry.family == leader) pids.push_back(pid);
  return pids;
}

std::map<pid_t, Usage> ProcessTable::usage_of(std::span<const pid_t> leaders) const {
  std::map<pid_t, Usage> families;
  for (const pid_t leader : leaders)
    if (alive(leader)) families[leader].age = host_.clock().now() - entries_.at(leader).began;
  return families;
}

size_t ProcessTable::reap_orphans(pid_t parent) {
  return std::erase_if(entries_, [parent](const auto& item) {
    const Entry& entry = item.second;
    return entry.parent == parent && !entry.owned && entry.process == nullptr;
  });
}

Result<void> ProcessTable::add_group(const std::string& name) {
  if (!groups_.insert(name).second) return fail_errno(EEXIST, "group {}", name);
  return {};
}

void ProcessTable::remove_group(const std::string& name) {
  if (members(name).empty()) groups_.erase(name);
}

std::vector<pid_t> ProcessTable::members(const std::string& group) const {
  std::vector<pid_t> pids;
  for (const auto& [pid, entry] : entries_)
    if (entry.process != nullptr && entry.group != nullptr && *entry.group == group)
      pids.push_back(pid);
  return pids;
}

ProcessTable::Until ProcessTable::until_ended(pid_t pid) { return {*this, pid, nullptr}; }
ProcessTable::Until ProcessTable::until_empty(const std::string& group) {
  return {*this, 0, &group};
}

}  // namespace tutti
