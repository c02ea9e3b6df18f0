// Whether a process gets on: its counters are looked at now and then, and must have changed. Pure
// logic; belongs to one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/units.h"

namespace tutti {

// How often to look for silences of that length: so that one is noticed soon after, and no host is
// busy with looking.
constexpr Duration look_pause(Duration hang_after) {
  constexpr int kLooks = 8;
  constexpr Duration kShortest = 50ms;
  constexpr Duration kLongest = 1s;
  return std::clamp(hang_after / kLooks, kShortest, kLongest);
}

class ProgressWatch {
 public:
  void begin(Instant now) {
    moved_ = now;
    longest_ = Duration();
  }
  // How long it may be silent. One that was silent for longer, and went on, has shown that it needs
  // more.
  Duration allowed(Duration hang_after) const {
    return longest_ > hang_after ? kPatience * longest_ : hang_after;
  }
  void note(uint64_t progress, Instant now) {
    if (progress == progress_) return;
    // The first time it also loads and compiles, which says nothing of the times after.
    if (progress_ != 0) longest_ = std::max(longest_, now - moved_);
    progress_ = progress;
    moved_ = now;
  }
  // Gives how long it may be silent when it has been for that long.
  std::optional<Duration> look(uint64_t progress, Instant now, Duration hang_after) {
    note(progress, now);
    const Duration most = allowed(hang_after);
    if (now - moved_ < most) return std::nullopt;
    return most;
  }
  uint64_t progress() const { return progress_; }  // as it was looked at last
  Instant moved() const { return moved_; }

 private:
  static constexpr int kPatience = 4;

  uint64_t progress_ = 0;
  Instant moved_{};
  Duration longest_{};
};

}  // namespace tutti
