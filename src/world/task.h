// Task<T>: a coroutine that starts when awaited and is awaited once.
//
// A Task is owned by whoever holds it and destroyed with it. Awaiting runs it at once; when it
// completes without waiting, the awaiting coroutine goes on without being suspended, so that a loop
// over such tasks needs no stack. What can fail returns Task<Result<T>>. Exceptions end the
// process: nothing below a Task may throw.
#pragma once

#include <coroutine>
#include <exception>
#include <memory>
#include <utility>

#include "base/assert.h"
#include "world/executor.h"

namespace tutti {

template <class T>
class Task;

namespace detail {

struct PromiseBase {
  PromiseBase() { ++live_frames; }
  ~PromiseBase() { --live_frames; }
  PromiseBase(const PromiseBase&) = delete;
  PromiseBase& operator=(const PromiseBase&) = delete;

  struct Final {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      PromiseBase& promise = self.promise();
      if (promise.starting) return std::noop_coroutine();  // the awaiter looks at done()
      if (promise.continuation) return promise.continuation;
      Strand::current()->finished();
      return std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  Final final_suspend() const noexcept { return {}; }
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }

  std::coroutine_handle<> continuation;
  bool starting = false;   // running inside the awaiter's await_suspend
  bool has_value = false;  // of Promise<T>, which saves the room that an optional takes for it
};

template <class T>
struct Promise : PromiseBase {
  Promise() {}
  ~Promise() {
    if (has_value) value.~T();
  }
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;

  Task<T> get_return_object();
  template <class U = T>
  void return_value(U&& result) {
    std::construct_at(&value, std::forward<U>(result));
    has_value = true;
  }
  union {
    T value;  // if it has one
  };
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() const {}
};

}  // namespace detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  class Awaiter {
   public:
    explicit Awaiter(Handle task) : task_(task) {}
    bool await_ready() const { return false; }
    bool await_suspend(std::coroutine_handle<> awaiting) {
      promise_type& promise = task_.promise();
      promise.continuation = awaiting;
      promise.starting = true;
      task_.resume();
      promise.starting = false;
      return !task_.done();
    }
    T await_resume() {
      if constexpr (!std::is_void_v<T>) return std::move(task_.promise().value);
    }

   private:
    Handle task_;
  };
  Awaiter operator co_await() && {
    TUTTI_ASSERT(handle_ && !handle_.done(), "a Task is awaited once");
    return Awaiter(handle_);
  }

  // Gives up ownership: for Scope, which runs the task as the root of a strand.
  Handle release() { return std::exchange(handle_, nullptr); }

 private:
  friend promise_type;
  explicit Task(Handle handle) : handle_(handle) {}
  Handle handle_;
};

namespace detail {
template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace detail

}  // namespace tutti
