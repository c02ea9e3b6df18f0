// How many processes the kernel has killed for memory around us, as cgroups tell.
//
// Version 2 counts in memory.events wherever the memory controller is on, for everything below:
// the group's own file is asked first, then those of the cgroups it is in, innermost first. Version
// 1 counts in memory.oom_control, for the members of that very cgroup: ours, which ranks are in
// too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "world/processes.h"

namespace tutti {

class MemoryKills {
 public:
  Result<uint64_t> count(const ProcessGroup* group);

 private:
  bool looked_ = false;
  std::string file_;  // around us; looked up at the first use, "" when there is none
};

// Files that may count, best first, from the texts of /proc/self/mountinfo and /proc/self/cgroup.
std::vector<std::string> memory_kill_files(std::string_view mounts, std::string_view own_groups);

// Of the text of such a file. Code::unsupported for one without a count.
Result<uint64_t> parse_memory_kills(std::string_view text);

}  // namespace tutti
