// Every scenario there is, each in the file of its name (wire.cc, launch.cc and fabric.cc have
// several).
#pragma once

#include "sims/scenario.h"

namespace tutti::sims {

extern const Scenario kEcho;
extern const Scenario kDisk;
extern const Scenario kHeartbeat;
extern const Scenario kTree;
extern const Scenario kLaunch;
extern const Scenario kLaunchDeaths;
extern const Scenario kRackLoss;
extern const Scenario kPartition;
extern const Scenario kHeadCrash;
extern const Scenario kHeadCrashes;
extern const Scenario kCoordinatorLoss;
extern const Scenario kAgentRestarts;
extern const Scenario kAgentLeaves;
extern const Scenario kSlowHosts;
extern const Scenario kThunderingRestart;
extern const Scenario kReplays;
extern const Scenario kExchange;
extern const Scenario kSpares;
extern const Scenario kScale;
extern const Scenario kTurnaround;
extern const Scenario kServices;
extern const Scenario kStuck;
extern const Scenario kFabric;
extern const Scenario kFabricTcp;
extern const Scenario kEventLog;
extern const Scenario kWirePartition;
extern const Scenario kWireSlowReader;
extern const Scenario kWireReset;

}  // namespace tutti::sims
