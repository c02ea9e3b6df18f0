// Parking on Linux: futexes and madvise. Any thread may use it.
#pragma once

#include "world/parking.h"

namespace tutti {

class RealParking final : public Parking {
 public:
  Instant now() const override;
  Instant coarse_now() const override;
  void yield() override;
  void park(const std::atomic<uint32_t>& word, uint32_t expected, Instant until) override;
  void wake_all(std::atomic<uint32_t>& word) override;
  Result<void> populate(MutableBytes pages) override;
  void discard(MutableBytes pages) override;
};

}  // namespace tutti
