#include "cluster/end_descendants.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <set>

namespace tutti {
namespace {

// A fork bomb makes new processes while we list; each pass stops those that make them. Past this
// many passes killing the stopped ones does more than stopping the last.
constexpr int kStopPasses = 16;
// What was killed needs a moment to be gone; the wait doubles up to the longest.
constexpr Duration kShortestPause = 200us;
constexpr Duration kLongestPause = 20ms;

// What is told of them travels far, and is read by people.
constexpr size_t kMostNamed = 20;

// Those of the processes that were signalled and those that may not be, being another user's.
struct Round {
  std::set<pid_t> killed;
  std::set<pid_t> refused;
};

// Stops what descends from us until a pass finds nothing new, then kills all of it.
Result<Round> kill_round(Processes& processes, const std::vector<pid_t>& spare) {
  Round round;
  for (int pass = 0; pass < kStopPasses; ++pass) {
    TRY(const std::vector<pid_t> found, processes.descendants(spare));
    bool all_known = true;
    for (const pid_t pid : found) {
      if (round.refused.contains(pid) || !round.killed.insert(pid).second) continue;
      all_known = false;
      auto stopped = processes.signal(pid, SIGSTOP);  // it may be gone
      if (stopped || stopped.error().code() != Code::denied) continue;
      round.killed.erase(pid);
      round.refused.insert(pid);
    }
    if (all_known) break;
  }
  for (const pid_t pid : round.killed) (void)processes.signal(pid, SIGKILL);
  return round;
}

// "12 (python, state D), 15 (sudo, state S)"
template <class Pids>
std::string with_names(Processes& processes, const Pids& pids) {
  std::vector<std::string> texts;
  for (const pid_t pid : pids) {
    if (texts.size() == kMostNamed) break;
    texts.push_back(name_process(processes, pid));
  }
  return fmt::format(
      "{}{}", fmt::join(texts, ", "),
      pids.size() > kMostNamed ? fmt::format(" and {} more", pids.size() - kMostNamed) : "");
}

Task<void> kill_group(World& world, ProcessGroup& group, Instant give_up) {
  // The group is a short cut: when it fails, the rounds do the same work.
  auto killed = group.kill();
  if (!killed) co_return;
  auto emptying = group.emptied();
  (void)co_await with_deadline(world.clock(), give_up, std::move(emptying));
}

}  // namespace

std::string name_process(Processes& processes, pid_t pid) {
  const std::string name = processes.name_of(pid);
  const char state = processes.state_of(pid);
  if (name.empty()) return fmt::format("{}", pid);
  return state == 0 ? fmt::format("{} ({})", pid, name)
                    : fmt::format("{} ({}, state {})", pid, name, state);
}

std::string name_processes(Processes& processes, const std::vector<pid_t>& pids) {
  return with_names(processes, pids);
}

Task<Result<void>> end_descendants(World& world, EndDescendantsOptions options) {
  const Shield to_the_end;
  Processes& processes = world.processes();
  const Instant give_up = world.clock().now() + kEndPatience;
  if (options.group != nullptr) co_await kill_group(world, *options.group, give_up);
  Duration pause = kShortestPause;
  bool seemed_empty = false;
  while (true) {
    processes.reap_orphans();
    if (processes.childless()) co_return {};
    auto left = processes.descendants(options.spare);
    // With children to spare, only looks can tell. One whose parent dies while we look may be
    // missed once: it is ours by the second look.
    const bool seems_empty = left && left->empty();
    if (seems_empty && seemed_empty && !options.spare.empty()) co_return {};
    seemed_empty = seems_empty;
    const bool late = world.clock().now() > give_up;
    if (late && !left) co_return fail(std::move(left).error());
    if (late)
      co_return fail(Code::deadline, "processes {} do not end even when killed",
                     with_names(processes, *left));
    auto round = kill_round(processes, options.spare);
    if (round && round->killed.empty() && !round->refused.empty())
      co_return fail(Code::denied, "processes {} are another user's and may not be ended",
                     with_names(processes, round->refused));
    (void)co_await world.clock().sleep(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace tutti
