// Everything a node can touch outside its own memory. RealWorld is Linux; a SimHost is one host of
// a simulation. Code written against World runs in both, unchanged.
#pragma once

#include <string>

#include "world/clock.h"
#include "world/disk.h"
#include "world/fault.h"
#include "world/memory.h"
#include "world/network.h"
#include "world/processes.h"
#include "world/random.h"
#include "world/scope.h"

namespace tutti {

class World {
 public:
  virtual ~World() = default;
  virtual Clock& clock() = 0;
  virtual Network& network() = 0;
  virtual Disk& disk() = 0;
  virtual Processes& processes() = 0;
  virtual Memory& memory() = 0;
  virtual Random& random() = 0;
  virtual const std::string& host_name() const = 0;

  // Whether the fault at this place shall happen now: never on Linux, by the seed in simulation.
  virtual bool fault(CodePlace& place) = 0;
};

}  // namespace tutti
