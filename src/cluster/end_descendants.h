// Nothing survives: ends every process below this one, however it tried to get away.
//
// Where the kernel keeps the processes in a group, the group is killed, which nobody in it can
// escape. Then, and where there is no group, whatever still descends from this process is stopped
// (so that it forks no more), killed and collected, round after round, until this process has no
// child left, not even an ended one. It must be a subreaper: then daemons and session leaders that
// left their parents descend from it too.
#pragma once

#include <string>
#include <vector>

#include "world/world.h"

namespace tutti {

struct EndDescendantsOptions {
  ProcessGroup* group = nullptr;
  std::vector<pid_t> spare;  // with what is below them: none of ours, they were there before
};

// Only what cannot be ended is an error, with numbers and names: what the kernel cannot (a process
// stuck in a device) after kEndPatience, another user's at once. Runs to its end even when
// cancelled.
constexpr Duration kEndPatience = 10s;
// "12 (python, state D)", or less of a process that has just gone.
std::string name_process(Processes& processes, pid_t pid);
// The same of several; of very many, how many more there are.
std::string name_processes(Processes& processes, const std::vector<pid_t>& pids);

Task<Result<void>> end_descendants(World& world, EndDescendantsOptions options);

}  // namespace tutti
