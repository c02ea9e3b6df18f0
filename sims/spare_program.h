// `python -m tutti.spare` in simulation: slow to get ready, then parked until it is given a rank.
#pragma once

#include <string>

#include "world/sim/process.h"

namespace tutti::sims {

// The environment it was given with its rank, as "KEY=value\0…"; "" when its keeper is gone.
Task<std::string> wait_for_rank(SimProcess& process);
// Of a setting in it.
std::string setting_of(const std::string& assignment, std::string_view key);

}  // namespace tutti::sims
