// Waiting for a descriptor that is asked rarely: a listener, a connection being made, a signalfd.
#pragma once

#include "world/real/loop.h"
#include "world/semaphore.h"

namespace tutti {

class Readiness final : public Watch {
 public:
  class Wait final : public detail::GrantWaiter {
   public:
    explicit Wait(Readiness& readiness) : readiness_(readiness) {}
    bool await_ready() {
      cancelled_ = cancelled_already();
      return cancelled_ || std::exchange(readiness_.ready_, false);
    }
    void await_suspend(std::coroutine_handle<> coroutine) {
      park(coroutine);
      readiness_.waiting_.push_back(*this);
    }

   private:
    Readiness& readiness_;
  };

  // co_await gives Result<void> after the next report, which may have come already; its only error
  // is Code::cancelled. Try the system call first, and again afterwards.
  Wait wait() { return Wait(*this); }

  void on_ready(uint32_t) override {
    ready_ = waiting_.empty();
    while (!waiting_.empty()) waiting_.pop_front().wake();
  }

 private:
  bool ready_ = false;
  List<Wait> waiting_;
};

}  // namespace tutti
