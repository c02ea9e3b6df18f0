// How coroutines are run: a queue of what is ready, and the strands it belongs to.
//
// A *strand* is one line of execution: a root Task and everything it awaits, of which exactly one
// coroutine runs or waits at any time. Strands are made by Scope::spawn and run on the thread's
// Executor, one after the other, never at once; code on one Executor needs no locks.
//
// A *waiter* is what a strand is suspended on (a timer, a read, a channel). Waiters live in the
// frame of the coroutine that waits, so that waiting allocates nothing. Whoever completes a waiter
// calls wake(), which queues the strand; it never runs inside the caller.
//
// Cancellation is a level, not an edge: once a strand is cancelled, the wait it is in ends with
// Code::cancelled and so does every later wait, until the strand returns. Shield defers it.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>

#include "base/list.h"
#include "base/result.h"

namespace tutti {

class Scope;
class Waiter;

// Something that can be queued to run once.
class Runnable : public ListNode {
 public:
  virtual void run() = 0;

 protected:
  ~Runnable() = default;
};

class Executor {
 public:
  Executor();
  ~Executor();  // asserts that no coroutine frame of this thread is left
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  static Executor& current();

  void post(Runnable& runnable) { ready_.push_back(runnable); }
  bool idle() const { return ready_.empty(); }
  // Runs what is ready now; what becomes ready meanwhile is left for the next call.
  void run_round();
  // Runs until nothing is ready.
  void run_ready();

 private:
  List<Runnable> ready_;
  Executor* outer_;
};

class Strand final {
 public:
  // The strand whose coroutine is running, or nullptr outside of one.
  static Strand* current() { return current_; }

  // Whether waits must end now.
  bool cancelled() const { return cancel_requested_ && shields_ == 0; }

  void resume(std::coroutine_handle<> coroutine);
  void finished() { finished_ = true; }

 private:
  friend class Scope;
  friend class Shield;
  friend class Waiter;
  class Start;  // runs it for the first time
  Strand(Scope& scope, std::coroutine_handle<> root, bool fallible)
      : root_(root), scope_(&scope), fallible_(fallible) {}
  ~Strand();

  void start();
  void request_cancel();
  void reap();

  static thread_local constinit Strand* current_;

  std::coroutine_handle<> root_;
  Scope* scope_;                       // the scope that owns this strand
  Waiter* waiting_ = nullptr;          // what the strand is suspended on; a Start at first
  std::coroutine_handle<> innermost_;  // which of its coroutines waits there
  Scope* innermost_scope_ = nullptr;   // scopes open in this strand, a stack
  Strand* previous_sibling_ = nullptr;
  Strand* next_sibling_ = nullptr;
  uint16_t shields_ = 0;
  bool fallible_;  // root is a Task<Result<void>>, else a Task<void>
  bool cancel_requested_ = false;
  bool finished_ = false;
};

// The base of every leaf awaiter. A derived class provides await_ready, await_suspend (which calls
// park) and await_resume, and says in on_cancel how to withdraw from whatever would have woken it.
class Waiter : public Runnable {
 public:
  // Queues the strand. Call once per park, from the same thread.
  void wake();
  bool parked() const { return strand_ != nullptr && strand_->waiting_ == this; }

 protected:
  Waiter() = default;
  ~Waiter() {
    if (parked()) strand_->waiting_ = nullptr;
  }

  // True when a wait must not begin because the strand is cancelled.
  static bool cancelled_already() {
    Strand* strand = Strand::current();
    return strand != nullptr && strand->cancelled();
  }
  void park(std::coroutine_handle<> coroutine) {
    strand_ = Strand::current();
    TUTTI_ASSERT(strand_ != nullptr, "a coroutine waits only inside a strand");
    strand_->innermost_ = coroutine;
    strand_->waiting_ = this;
  }
  // Continues the strand at once. Only for completions that come from the top of an event loop.
  void resume_now() {
    strand_->waiting_ = nullptr;
    strand_->resume(strand_->innermost_);
  }
  // The strand was cancelled while parked here: set a result that says so and wake().
  virtual void on_cancel() = 0;

 private:
  friend class Strand;
  void run() override { strand_->resume(strand_->innermost_); }

  Strand* strand_ = nullptr;
};

inline Error cancelled_error() { return {Code::cancelled, "cancelled"}; }

// Gives way to everything else that is ready.
class Yield final : public Waiter {
 public:
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    wake();
  }
  void await_resume() const {}

 private:
  void on_cancel() override {}
};
inline Yield yield() { return {}; }

// While one lives, the strand that made it is not cancelled: for clean-up that must wait.
class Shield {
 public:
  Shield() : strand_(Strand::current()) { ++strand_->shields_; }
  ~Shield() { --strand_->shields_; }
  Shield(const Shield&) = delete;
  Shield& operator=(const Shield&) = delete;

 private:
  Strand* strand_;
};

// Coroutine frames alive on this thread; tests and Executor's destructor look at it.
extern thread_local constinit size_t live_frames;

}  // namespace tutti
