// How ranks of several hosts find each other: who is where in an epoch, and the transport between
// them. What is behind it knows the cluster; the fabric does not.
#pragma once

#include <vector>

#include "fabric/transport.h"

namespace tutti {

class Wiring {
 public:
  virtual ~Wiring() = default;

  // On the engine: takes part in this epoch. Gives of every rank the machine it is on, and the
  // transport is ready for the epoch. Code::cancelled or Code::unavailable: the epoch is over, or
  // another is about to begin.
  virtual Task<Result<std::vector<uint32_t>>> begin_epoch(uint64_t epoch) = 0;

  virtual Transport& transport() = 0;
};

}  // namespace tutti
