// Who descends from whom, as /proc tells.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "world/handle.h"

namespace tutti {

// Holds /proc open and one descriptor in reserve: looking needs no more than these two, so it works
// when no descriptor is left.
class ProcessTree {
 public:
  // Fails when /proc does not show the processes that we see.
  Result<void> open();

  // Every process below the ancestor that lives now, parents first, but for those to spare and what
  // is below them; those that ended and wait to be collected are left out. One look at all of
  // /proc: the lists of children that some kernels offer may miss one when a sibling ends
  // meanwhile.
  Result<std::vector<pid_t>> descendants_of(pid_t ancestor, std::span<const pid_t> spare);

 private:
  std::unique_ptr<DIR, int (*)(DIR*)> proc_{nullptr, &closedir};
  Handle reserve_;
};

}  // namespace tutti
