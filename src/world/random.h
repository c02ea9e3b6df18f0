// Random numbers of one host: unpredictable on Linux, a function of the seed in simulation.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace tutti {

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t next() = 0;
  virtual void fill(MutableBytes bytes) = 0;

  // Uniform in [0, bound); bound > 0.
  uint64_t below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  // Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return unit() < probability; }
};

}  // namespace tutti
