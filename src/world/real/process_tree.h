// Who descends from whom, as /proc tells.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/result.h"

namespace tutti {

// Every process below the ancestor that lives now, parents first; those that ended and wait to be
// collected are left out. One look at all of /proc: the lists of children that some kernels offer
// may miss one when a sibling ends meanwhile.
Result<std::vector<pid_t>> descendants_of(pid_t ancestor);

}  // namespace tutti
