// A point in time at which something happens. Timers live inside the objects that wait for them;
// arming and disarming allocate nothing, and a timer that dies is disarmed.
#pragma once

#include <cstdint>

namespace tutti {

class Clock;

class Timer {
 public:
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  bool armed() const { return slot_ != kUnarmed; }
  Clock* clock() const { return clock_; }

 protected:
  Timer() = default;
  ~Timer();

 private:
  friend class Clock;
  friend class TimerWheel;
  friend class TimerHost;
  // Called once, from the top of the event loop, after the timer was disarmed.
  virtual void fire() = 0;

  static constexpr uint32_t kUnarmed = ~0U;

  Clock* clock_ = nullptr;
  int64_t at_ns_ = 0;   // the rest is the wheel's
  uint64_t sequence_ = 0;
  uint32_t slot_ = kUnarmed;
  uint32_t index_ = 0;
};

// What owns a wheel derives from this to fire the timers that are due.
class TimerHost {
 protected:
  static void fire(Timer& timer) { timer.fire(); }
};

}  // namespace tutti
