// Counting permits and one-time events, between strands of one executor.
#pragma once

#include "world/executor.h"

namespace tutti {

namespace detail {

// A wait whose only outcomes are "granted" and "cancelled".
class GrantWaiter : public Waiter {
 public:
  Result<void> await_resume() const {
    if (cancelled_) return fail(cancelled_error());
    return {};
  }

 protected:
  void on_cancel() override {
    cancelled_ = true;
    wake();
  }
  bool cancelled_ = false;
};

}  // namespace detail

// Permits are granted in order of arrival; a large request is not overtaken by small ones.
class Semaphore {
 public:
  explicit Semaphore(uint64_t permits) : permits_(permits) {}
  ~Semaphore() { TUTTI_ASSERT(waiting_.empty(), "a semaphore outlives its waiters"); }
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  class Acquire final : public detail::GrantWaiter {
   public:
    Acquire(Semaphore& semaphore, uint64_t count) : semaphore_(semaphore), count_(count) {}
    bool await_ready() {
      cancelled_ = cancelled_already();
      return cancelled_ || (semaphore_.waiting_.empty() && semaphore_.try_acquire(count_));
    }
    void await_suspend(std::coroutine_handle<> coroutine) {
      park(coroutine);
      semaphore_.waiting_.push_back(*this);
    }

   private:
    friend class Semaphore;
    void on_cancel() override {
      GrantWaiter::on_cancel();
      semaphore_.grant();  // whoever stood behind a large request may go now
    }
    Semaphore& semaphore_;
    uint64_t count_;
  };

  // co_await gives Result<void>; its only error is Code::cancelled.
  Acquire acquire(uint64_t count = 1) { return {*this, count}; }
  bool try_acquire(uint64_t count = 1) {
    if (permits_ < count) return false;
    permits_ -= count;
    return true;
  }
  void release(uint64_t count = 1) {
    permits_ += count;
    grant();
  }
  uint64_t permits() const { return permits_; }

 private:
  void grant() {
    while (!waiting_.empty() && try_acquire(waiting_.front().count_)) waiting_.pop_front().wake();
  }
  uint64_t permits_;
  List<Acquire> waiting_;
};

// Set once; everyone who waits, now or later, goes on.
class Event {
 public:
  Event() = default;
  ~Event() { TUTTI_ASSERT(waiting_.empty(), "an event outlives its waiters"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  class Wait final : public detail::GrantWaiter {
   public:
    explicit Wait(Event& event) : event_(event) {}
    bool await_ready() {
      cancelled_ = cancelled_already();
      return cancelled_ || event_.set_;
    }
    void await_suspend(std::coroutine_handle<> coroutine) {
      park(coroutine);
      event_.waiting_.push_back(*this);
    }

   private:
    friend class Event;
    Event& event_;
  };

  Wait wait() { return Wait(*this); }
  void set() {
    set_ = true;
    while (!waiting_.empty()) waiting_.pop_front().wake();
  }
  bool is_set() const { return set_; }

 private:
  bool set_ = false;
  List<Wait> waiting_;
};

}  // namespace tutti
