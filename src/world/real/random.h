// The kernel's random numbers, taken a page at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "world/random.h"

namespace tutti {

class RealRandom final : public Random {
 public:
  RealRandom() = default;
  ~RealRandom() override;
  RealRandom(const RealRandom&) = delete;
  RealRandom& operator=(const RealRandom&) = delete;

  uint64_t next() override;
  void fill(MutableBytes bytes) override;

 private:
  static constexpr size_t kPageBytes = 4096;
  // Given out from the end, and erased. In a page that a fork finds zeroed, so that parent and
  // child never draw the same numbers.
  struct Page {
    uint64_t left;
    std::byte bytes[kPageBytes - sizeof(uint64_t)];
  };
  void take(MutableBytes bytes);
  void refill();

  Page* page_ = nullptr;  // mapped at first use
};

}  // namespace tutti
