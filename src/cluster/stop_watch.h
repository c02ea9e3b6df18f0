// A keeper is never meant to be stopped: one that is hears nothing, and its ranks, which may stop
// it, would outlive whatever is asked of it. Whoever controls one looks now and then, and has it go
// on. A debugger's stop is another state, and left alone.
#pragma once

#include <sys/types.h>

#include "world/processes.h"

namespace tutti {

// Between two looks at a keeper of which something is expected.
constexpr Duration kKeeperLook = 1s;

class StopWatch {
 public:
  enum class Seen : uint8_t { going, woken, hopeless };

  // Hopeless is one that is stopped again by the next look, so often that it is kept from working.
  Seen look(Processes& processes, pid_t keeper);

 private:
  int stops_ = 0;  // in a row
};

}  // namespace tutti
