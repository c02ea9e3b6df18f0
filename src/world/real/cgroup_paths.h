// Where cgroups are, from the texts of /proc/self/mountinfo and /proc/self/cgroup. A controller of
// "" means version 2, which has one hierarchy for all; any other is one of version 1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tutti {

struct CgroupMount {
  std::string root;  // the part of the hierarchy that is mounted
  std::string at;

  // Where a cgroup is seen; the mount itself when it does not show it.
  std::string folder_of(std::string_view cgroup) const;
};

std::vector<CgroupMount> cgroup_mounts(std::string_view mounts, std::string_view controller);
// As the hierarchy names it: "/user.slice/a"; "" when it is in none.
std::string_view own_cgroup(std::string_view own_groups, std::string_view controller);

// Removes and returns what stands before the separator, or all of it.
std::string_view take_until(std::string_view& text, char separator);

// Of a folder's descriptor, or AT_FDCWD.
Result<std::string> read_kernel_file(int folder, const char* path);

}  // namespace tutti
