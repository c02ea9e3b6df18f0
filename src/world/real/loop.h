// The event loop of one thread: runs what is ready, fires timers, hears of descriptors.
//
// Everything here belongs to the thread that made the loop, except post_from_any_thread(). While a
// loop lives, its Executor is the thread's current one.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "base/result.h"
#include "base/units.h"
#include "world/executor.h"
#include "world/handle.h"
#include "world/real/clock.h"
#include "world/real/spinner.h"
#include "world/scope.h"
#include "world/task.h"

namespace tutti {

struct LoopOptions {
  // The longest a loop polls before it sleeps, when polling has been paying (see spinner.h): a
  // wake-up of the other side and its answer, or one side that slept would make both sleep. Zero
  // for processes that mostly wait: command-line tools, the keeper.
  Duration spin = 100us;
};

// Hears of one descriptor. Must be removed from the loop before it dies.
class Watch {
 public:
  // The EPOLL* bits that hold now. Called from the top of the loop, edge-triggered: once per
  // change, so whoever is told reads or writes until EAGAIN or remembers that it may.
  virtual void on_ready(uint32_t events) = 0;

 protected:
  ~Watch() = default;
};

class Loop {
 public:
  explicit Loop(LoopOptions options = {});  // ends the process when there are no descriptors left
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Runs the loop until the task, the root of a strand of its own, is done.
  template <class T>
  T run(Task<T> task);

  RealClock& clock() { return clock_; }
  Executor& executor() { return executor_; }

  // Begins telling the watch of these EPOLL* bits (EPOLLET is implied). What holds already is told
  // as well. Code::unsupported for a descriptor that is always ready, such as a regular file's.
  Result<void> add(int fd, uint32_t events, Watch& watch);
  // Changes the bits; what holds already is told again.
  void change(int fd, uint32_t events, Watch& watch);
  // Nothing is told from here on, not even what the kernel has reported already. Call before the
  // descriptor is closed.
  void remove(int fd, Watch& watch);

  // Queues the runnable on this loop's executor and wakes the loop. The runnable must live until
  // it ran, and the loop until this returns.
  void post_from_any_thread(Runnable& runnable);

 private:
  class Wakeup final : public Watch {
   public:
    explicit Wakeup(Loop& loop) : loop_(loop) {}
    void on_ready(uint32_t events) override;

   private:
    Loop& loop_;
  };
  class Alarm final : public Watch {
   public:
    explicit Alarm(Loop& loop) : loop_(loop) {}
    void on_ready(uint32_t events) override;

   private:
    Loop& loop_;
  };

  void run_until_done(const Scope& scope);
  void poll(bool may_wait);
  bool collect(int timeout_ms);
  void wait();
  bool spin(Instant from, Duration longest);
  void set_alarm();
  void dispatch();

  // One batch of the kernel's reports; the rest comes with the next.
  static constexpr int kBatch = 128;

  Executor executor_;
  RealClock clock_;
  Spinner spinner_;
  Handle epoll_;
  Handle timer_;
  Handle event_;
  Alarm alarm_{*this};
  Wakeup wakeup_{*this};
  int64_t alarm_at_ns_ = TimerWheel::kNothing;

  std::array<epoll_event, kBatch> reports_;
  int reported_ = 0;
  int next_report_ = 0;

  std::mutex posted_lock_;
  List<Runnable> posted_;  // guarded by posted_lock_
};

namespace detail {

template <class T>
Task<void> keep_value(Task<T> work, std::optional<T>& out) {
  T value = co_await std::move(work);
  out.emplace(std::move(value));
}

}  // namespace detail

template <class T>
T Loop::run(Task<T> task) {
  Scope root{Scope::Root{}};
  if constexpr (std::is_void_v<T>) {
    root.spawn(std::move(task));
    run_until_done(root);
  } else {
    std::optional<T> out;
    root.spawn(detail::keep_value(std::move(task), out));
    run_until_done(root);
    return std::move(*out);
  }
}

}  // namespace tutti
