#include "world/real/clock.h"

#include <algorithm>
#include <ctime>

namespace tutti {

namespace {

// The wheel spans 2^60 ns; the monotonic clock begins at boot, so this is 36 years of uptime.
constexpr int64_t kFarthestNs = (int64_t{1} << 60) - 1;

int64_t read_clock(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Instant RealClock::now() const { return instant_from_ns(read_clock(CLOCK_MONOTONIC)); }
int64_t RealClock::unix_ns() const { return read_clock(CLOCK_REALTIME); }

void RealClock::do_arm(Timer& timer, Instant at) {
  wheel_.insert(timer, std::min(to_ns(at), kFarthestNs));
}

void RealClock::fire_due() {
  if (wheel_.size() == 0) return;
  const int64_t now_ns = to_ns(now());
  if (wheel_.earliest_ns() > now_ns) return;
  // As many as there are now: who sets one for the past while it fires must not keep the loop from
  // what comes from outside.
  for (size_t left = wheel_.size(); left != 0; --left) {
    Timer* timer = wheel_.take(now_ns);
    if (timer == nullptr) return;
    fire(*timer);
  }
}

}  // namespace tutti
