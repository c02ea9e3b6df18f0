// Asks as a process whose epoch is over would, in any scenario with a cluster.
#pragma once

#include <string>

#include "sims/exit_ledger.h"
#include "world/sim/simulator.h"

namespace tutti::sims {

// Tries to publish a value through the exchange of the host on which a later life of the same
// process has just begun. Whoever answers must refuse it.
Task<void> publish_from_old_epoch(SimHost& host, Life old, std::string exchange);

}  // namespace tutti::sims
