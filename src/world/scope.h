// Structured concurrency: a Scope owns the strands spawned in it, cancels and joins them.
//
//   Scope scope;                       // a local of a coroutine
//   scope.spawn(serve(listener));
//   scope.spawn(heartbeat(clock));
//   auto joined = co_await scope.join();
//
// A child that fails cancels its siblings, and join() returns its error. Cancelling the strand a
// scope was opened in cancels the scope. A scope must be joined before it dies: a strand that
// outlives its scope is a bug, asserted. Declare a scope after what its children refer to.
#pragma once

#include <optional>

#include "world/clock.h"
#include "world/executor.h"
#include "world/task.h"

namespace tutti {

class Scope {
 public:
  Scope();  // inside a coroutine: nested in the running strand
  struct Root {};
  explicit Scope(Root) {}  // of a world; nobody cancels it but its owner
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  // The child is queued, not run inside the call.
  void spawn(Task<void> task);
  void spawn(Task<Result<void>> task);

  // Ends every child's waits with Code::cancelled. With a reason, join() returns that.
  void cancel();
  void cancel(Error why);
  bool cancelled() const { return cancelled_; }
  size_t size() const { return size_; }

  // Waits until all children have returned, also when the waiting strand is cancelled (which
  // cancels the children). Gives the first child's error, or the reason of cancel.
  class Join;
  Join join();

  // Destroys all children where they stand, without running them: what a crash does.
  void kill();

 private:
  friend class Strand;
  void add(std::coroutine_handle<> root, bool fallible);
  void remove(Strand& strand);
  void child_failed(const Error& error);

  Strand* parent_ = nullptr;
  Scope* outer_ = nullptr;
  Strand* first_ = nullptr;
  Strand* last_ = nullptr;
  Join* joining_ = nullptr;
  std::optional<Error> error_;
  uint32_t size_ = 0;
  bool cancelled_ = false;
};

class Scope::Join final : public Waiter {
 public:
  explicit Join(Scope& scope) : scope_(scope) {}
  ~Join() {
    if (scope_.joining_ == this) scope_.joining_ = nullptr;
  }
  bool await_ready();
  void await_suspend(std::coroutine_handle<> coroutine);
  Result<void> await_resume();

 private:
  void on_cancel() override;
  Scope& scope_;
};

inline Scope::Join Scope::join() { return Join(*this); }

namespace detail {

class CancelAt final : public Timer {
 public:
  CancelAt(Clock& clock, Instant at, Scope& scope) : scope_(scope) {
    if (at != kNever) clock.arm(*this, at);
  }
  bool fired() const { return fired_; }

 private:
  void fire() override {
    fired_ = true;
    scope_.cancel();
  }
  Scope& scope_;
  bool fired_ = false;
};

template <class T>
Task<void> keep_result(Task<Result<T>> work, std::optional<Result<T>>& out) {
  Result<T> result = co_await std::move(work);
  out.emplace(std::move(result));
}

}  // namespace detail

// Runs the work, cancelling it at the deadline; then the error is Code::deadline.
template <class T>
Task<Result<T>> with_deadline(Clock& clock, Instant at, Task<Result<T>> work) {
  std::optional<Result<T>> out;
  Scope scope;
  detail::CancelAt alarm(clock, at, scope);
  scope.spawn(detail::keep_result(std::move(work), out));
  auto joined = co_await scope.join();
  if (!out->has_value() && out->error().code() == Code::cancelled && joined && alarm.fired())
    co_return fail(Code::deadline, "the time allowed ran out");
  co_return std::move(*out);
}

}  // namespace tutti
