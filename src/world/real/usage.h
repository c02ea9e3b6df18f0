// What families of processes use, as /proc tells.
#pragma once

#include <map>
#include <span>

#include "world/processes.h"

namespace tutti {

// See Processes::usage_of(). Empty where there is no /proc.
std::map<pid_t, Usage> read_usage(std::span<const pid_t> leaders);

}  // namespace tutti
