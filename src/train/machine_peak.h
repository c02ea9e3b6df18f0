// How fast the machine could multiply and add at most, measured.
#pragma once

#include "world/parking.h"
#include "world/team.h"

namespace tutti {

// Floating-point operations in a second, by all threads of the team together. Takes some 100 ms.
double measure_fma_peak(Team& team, const Parking& clock);

}  // namespace tutti
