// Time, as one host sees it. In simulation it is virtual and may drift.
#pragma once

#include "base/units.h"
#include "world/executor.h"
#include "world/timer.h"

namespace tutti {

class Sleep;

class Clock {
 public:
  virtual ~Clock() = default;

  // Monotonic; never goes back, says nothing about other hosts.
  virtual Instant now() const = 0;
  // Nanoseconds since 1970, for people and certificates; may jump.
  virtual int64_t unix_ns() const = 0;

  // The timer fires once, at or after the instant; arming an armed timer moves it.
  void arm(Timer& timer, Instant at);
  void disarm(Timer& timer);

  // co_await clock.sleep(5ms) gives Result<void>; its only error is Code::cancelled.
  Sleep sleep(Duration duration);
  Sleep sleep_until(Instant at);

 protected:
  virtual void do_arm(Timer& timer, Instant at) = 0;
  virtual void do_disarm(Timer& timer) = 0;
};

class Sleep final : public Waiter, private Timer {
 public:
  Sleep(Clock& clock, Instant at) : clock_(clock), at_(at) {}
  bool await_ready() {
    cancelled_ = cancelled_already();
    return cancelled_;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    if (at_ != kNever) clock_.arm(*this, at_);
  }
  Result<void> await_resume() const {
    if (cancelled_) return fail(cancelled_error());
    return {};
  }

 private:
  void fire() override { resume_now(); }
  void on_cancel() override {
    cancelled_ = true;
    clock_.disarm(*this);
    wake();
  }

  Clock& clock_;
  Instant at_;
  bool cancelled_ = false;
};

inline Timer::~Timer() {
  if (armed()) clock_->disarm(*this);
}
inline void Clock::arm(Timer& timer, Instant at) {
  if (timer.armed()) disarm(timer);
  timer.clock_ = this;
  do_arm(timer, at);
}
inline void Clock::disarm(Timer& timer) {
  if (timer.armed()) do_disarm(timer);
}
inline Sleep Clock::sleep_until(Instant at) { return {*this, at}; }
inline Sleep Clock::sleep(Duration duration) {
  const Instant from = now();
  return {*this, duration >= kNever - from ? kNever : from + duration};
}

}  // namespace tutti
