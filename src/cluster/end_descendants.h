// Nothing survives: ends every process below this one, however it tried to get away.
//
// Where the kernel keeps the processes in a group, the group is killed, which nobody in it can
// escape. Then, and where there is no group, whatever still descends from this process is stopped
// (so that it forks no more), killed and collected, round after round, until nothing is left. This
// process must be a subreaper: then daemons and session leaders that left their parents descend
// from it too.
#pragma once

#include <vector>

#include "world/world.h"

namespace tutti {

struct EndDescendantsOptions {
  ProcessGroup* group = nullptr;
  std::vector<pid_t> spare;  // descendants that are none of ours: they were there before
};

// Only what the kernel cannot end (a process stuck in a device) is an error, with its numbers,
// after kEndPatience. Runs to its end even when cancelled.
constexpr Duration kEndPatience = 10s;
Task<Result<void>> end_descendants(World& world, EndDescendantsOptions options);

}  // namespace tutti
