// Linux's clocks, and the timers of one loop.
#pragma once

#include "world/clock.h"
#include "world/timer_wheel.h"

namespace tutti {

class RealClock final : public Clock, private TimerHost {
 public:
  Instant now() const override;      // CLOCK_MONOTONIC
  int64_t unix_ns() const override;  // CLOCK_REALTIME

  // For the loop: fires what is due; no timer is due before earliest_ns().
  void fire_due();
  int64_t earliest_ns() const { return wheel_.earliest_ns(); }

 private:
  void do_arm(Timer& timer, Instant at) override;
  void do_disarm(Timer& timer) override { wheel_.remove(timer); }

  TimerWheel wheel_;
};

}  // namespace tutti
