// A clock that moves only when told to: for tests of code that waits.
#pragma once

#include "world/clock.h"
#include "world/timer_wheel.h"

namespace tutti {

class ManualClock final : public Clock, private TimerHost {
 public:
  Instant now() const override { return now_; }
  int64_t unix_ns() const override { return to_ns(now_); }

  // Runs everything that is ready, then fires timers in order until nothing is left to do before
  // the given time has passed.
  void advance(Duration duration) {
    const Instant end = now_ + duration;
    Executor& executor = Executor::current();
    for (;;) {
      executor.run_ready();
      Timer* timer = wheel_.take(to_ns(end));
      if (timer == nullptr) break;
      now_ = instant_from_ns(wheel_.taken_at_ns());
      fire(*timer);
    }
    now_ = end;
  }

 private:
  void do_arm(Timer& timer, Instant at) override { wheel_.insert(timer, to_ns(at)); }
  void do_disarm(Timer& timer) override { wheel_.remove(timer); }

  Instant now_{};
  TimerWheel wheel_;
};

}  // namespace tutti
