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
  uint16_t kind() const { return kind_; }

 protected:
  // A world may mark the timers of its own by a kind other than 0.
  explicit Timer(uint16_t kind = 0) : kind_(kind) {}
  ~Timer();

 private:
  friend class Clock;
  friend class TimerWheel;
  friend class TimerHost;
  // Called once, from the top of the event loop, after the timer was disarmed.
  virtual void fire() = 0;

  static constexpr uint16_t kUnarmed = 0xFFFF;
  static constexpr uint16_t kHeld = 0xFFFE;

  Clock* clock_ = nullptr;
  int64_t at_ns_ = 0;  // the rest is the wheel's
  uint64_t sequence_ = 0;
  uint16_t slot_ = kUnarmed;
  uint16_t kind_;
  uint32_t index_ = 0;
};

// What owns a wheel derives from this to fire the timers that are due.
class TimerHost {
 protected:
  static void fire(Timer& timer) { timer.fire(); }

  // For timers that a world puts in its wheel without a call of Clock::arm.
  static void assign(Timer& timer, Clock& clock) { timer.clock_ = &clock; }

  // A timer whose time has come may have to wait for something else: it is armed still, but stands
  // at `index` in a queue of its host.
  static void hold(Timer& timer, uint32_t index) {
    timer.slot_ = Timer::kHeld;
    timer.index_ = index;
  }
  static bool held(const Timer& timer) { return timer.slot_ == Timer::kHeld; }
  static uint32_t held_at(const Timer& timer) { return timer.index_; }
  static void release(Timer& timer) { timer.slot_ = Timer::kUnarmed; }
};

}  // namespace tutti
