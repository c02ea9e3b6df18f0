// Which processes were started with a variable, as /proc tells.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace tutti {

// Processes that live, without this one, whose environment at their start had "KEY=value". Those
// that we may not look into, as other users' are, are passed over.
Result<std::vector<pid_t>> find_by_environment(const std::string& setting);

}  // namespace tutti
