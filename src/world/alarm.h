// A sleep that others may end early: what a loop waits on that has both work and a schedule.
#pragma once

#include "world/clock.h"

namespace tutti {

class Alarm {
 public:
  class Wait;
  explicit Alarm(Clock& clock) : clock_(clock) {}

  // co_await gives Result<void> at the instant, or as soon as somebody rings; at once if somebody
  // has since the last wait. Its only error is Code::cancelled. One strand waits.
  Wait until(Instant at);
  void ring();

 private:
  Clock& clock_;
  Wait* waiting_ = nullptr;
  bool rung_ = false;
};

class Alarm::Wait final : public Waiter, private Timer {
 public:
  Wait(Alarm& alarm, Instant at) : alarm_(alarm), at_(at) {}
  ~Wait() {
    if (alarm_.waiting_ == this) alarm_.waiting_ = nullptr;
  }
  bool await_ready() {
    cancelled_ = cancelled_already();
    return cancelled_ || alarm_.rung_;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    TUTTI_ASSERT(alarm_.waiting_ == nullptr, "one strand waits for an alarm");
    park(coroutine);
    alarm_.waiting_ = this;
    if (at_ != kNever) alarm_.clock_.arm(*this, at_);
  }
  Result<void> await_resume() {
    alarm_.waiting_ = nullptr;
    alarm_.rung_ = false;
    if (cancelled_) return fail(cancelled_error());
    return {};
  }

 private:
  friend class Alarm;
  void fire() override {
    alarm_.waiting_ = nullptr;
    resume_now();
  }
  void on_cancel() override {
    cancelled_ = true;
    alarm_.waiting_ = nullptr;
    alarm_.clock_.disarm(*this);
    wake();
  }
  Alarm& alarm_;
  Instant at_;
  bool cancelled_ = false;
};

inline Alarm::Wait Alarm::until(Instant at) { return {*this, at}; }
inline void Alarm::ring() {
  rung_ = true;
  if (waiting_ == nullptr) return;
  Wait& wait = *std::exchange(waiting_, nullptr);
  clock_.disarm(wait);
  wait.wake();
}

}  // namespace tutti
