// Who failed for want of memory. The kernel only counts whom it killed for it, so each of those it
// counted is taken for the next failure that may come of it: that of the process itself, or of one
// that had started it and fails soon after. Pure logic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace tutti {

class MemoryBlame {
 public:
  // A failure that comes later than that has another reason; twice as late at most is believed.
  static constexpr Duration kWindow = 10s;

  // The kernel's count, told at the start and then every now and then.
  void look(uint64_t kills, Instant now) {
    if (looked_at_ != kNever && now - looked_at_ < kWindow) return;
    explained_ = looked_at_ == kNever ? kills : std::max(explained_, before_);
    before_ = kills;
    looked_at_ = now;
  }
  // Whether the count explains a failure; then it explains one less.
  bool explains(uint64_t kills) {
    if (looked_at_ == kNever || kills <= explained_) return false;
    ++explained_;
    return true;
  }

 private:
  uint64_t explained_ = 0;
  uint64_t before_ = 0;
  Instant looked_at_ = kNever;
};

}  // namespace tutti
