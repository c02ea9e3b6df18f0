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

Result<std::vector<pid_t>> strangers_excluded(Processes& processes,
                                              const std::vector<pid_t>& spare) {
  processes.reap_orphans();
  TRY(std::vector<pid_t> found, processes.descendants());
  std::erase_if(found, [&](pid_t pid) { return std::ranges::find(spare, pid) != spare.end(); });
  return found;
}

// Stops what descends from us until a pass finds nothing new, then kills all of it.
Result<void> kill_round(Processes& processes, const std::vector<pid_t>& spare) {
  std::set<pid_t> stopped;
  for (int pass = 0; pass < kStopPasses; ++pass) {
    TRY(const std::vector<pid_t> found, strangers_excluded(processes, spare));
    bool all_known = true;
    for (const pid_t pid : found) {
      if (!stopped.insert(pid).second) continue;
      all_known = false;
      (void)processes.signal(pid, SIGSTOP);  // it may be gone, or not ours to signal
    }
    if (all_known) break;
  }
  for (const pid_t pid : stopped) (void)processes.signal(pid, SIGKILL);
  return {};
}

}  // namespace

Task<Result<void>> end_descendants(World& world, EndDescendantsOptions options) {
  const Shield to_the_end;
  Processes& processes = world.processes();
  const Instant give_up = world.clock().now() + kEndPatience;
  if (options.group != nullptr) {
    // The group is a short cut: when it fails, the rounds below do the same work.
    auto killed = options.group->kill();
    if (killed) {
      auto emptying = options.group->emptied();
      auto emptied = co_await with_deadline(world.clock(), give_up, std::move(emptying));
      (void)emptied;
    }
  }
  Duration pause = kShortestPause;
  bool seemed_empty = false;
  while (true) {
    auto left = strangers_excluded(processes, options.spare);
    if (!left) co_return fail(std::move(left).error());
    // One whose parent dies while we look may be missed once: it is ours by the second look.
    if (left->empty() && seemed_empty) co_return {};
    seemed_empty = left->empty();
    if (seemed_empty) continue;
    if (world.clock().now() > give_up)
      co_return fail(Code::deadline, "processes {} do not end even when killed",
                     fmt::join(*left, ", "));
    auto round = kill_round(processes, options.spare);
    if (!round) co_return round;
    (void)co_await world.clock().sleep(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace tutti
