#include "cluster/stop_watch.h"

#include <csignal>

namespace tutti {
namespace {

constexpr char kStopped = 'T';  // the kernel's letter
// In a row. A second may be an accident of whoever stops all that a user has.
constexpr int kMostStops = 3;

}  // namespace

StopWatch::Seen StopWatch::look(Processes& processes, pid_t keeper) {
  if (processes.state_of(keeper) != kStopped) {
    stops_ = 0;
    return Seen::going;
  }
  if (++stops_ >= kMostStops) return Seen::hopeless;
  (void)processes.signal(keeper, SIGCONT);
  return Seen::woken;
}

}  // namespace tutti
