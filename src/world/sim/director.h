// Makes the faults of a plan happen, and unhappen, for as long as it is told to. It draws from the
// seed alone, whatever the programs of the hosts do.
#pragma once

#include "world/sim/simulator.h"

namespace tutti {

// Runs until cancelled. One strand per kind of fault, in a scope of its own.
Task<Result<void>> direct_faults(Simulator& simulator, FaultPlan plan);

}  // namespace tutti
