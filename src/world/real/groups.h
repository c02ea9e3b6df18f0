// Process groups as cgroups of version 2. Of the loop's thread.
//
// Groups need a cgroup2 mount that we may write to, wherever it is, and no controllers. They are
// made below our own cgroup, so that whoever limits or ends us reaches them too; below the mount's
// root only where the mount does not show our own. A folder's name ends with its maker,
// "@<pid>.<start>.<pid namespace>", so that what a dead process left can be told from what a living
// one uses, and from what one in another container does, whom we cannot see.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "world/processes.h"
#include "world/real/loop.h"

namespace tutti {

class Groups {
 public:
  explicit Groups(Loop& loop) : loop_(loop) {}
  Result<std::unique_ptr<ProcessGroup>> create(std::string name);
  Result<std::unique_ptr<ProcessGroup>> open(std::string name);
  size_t sweep();

 private:
  Result<void> find_parents();
  bool sweep_one(const std::string& path);

  Loop& loop_;
  std::vector<std::string> parents_;  // looked up at the first use
};

// The folder's descriptor, for clone3.
int group_folder(const ProcessGroup& group);

// Of a folder's name. What cannot be found out is taken for alive: whoever believes otherwise
// kills.
bool maker_died(std::string_view folder);

// What kill() does on kernels before 5.14, which have no cgroup.kill: freezes the members, so that
// none can fork, and kills each.
void kill_one_by_one(int group_folder);

// Folders where groups may be made, best first, from the texts of /proc/self/mountinfo and
// /proc/self/cgroup.
std::vector<std::string> group_parents(std::string_view mounts, std::string_view own_groups);

}  // namespace tutti
