// Every scenario there is, each in the file of its name.
#pragma once

#include "sims/scenario.h"

namespace tutti::sims {

extern const Scenario kEcho;
extern const Scenario kDisk;
extern const Scenario kHeartbeat;

}  // namespace tutti::sims
