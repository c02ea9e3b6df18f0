// Signals to this process, as something to wait for: Ctrl-C, SIGTERM, a window's new size.
//
// While a Signals lives, its signals are blocked in the thread that made it and in every thread
// started from there afterwards, and are given to next() instead. Make it before other threads
// are started: the kernel hands a signal to any thread that does not block it. Those that whoever
// started us had ignored (nohup, a script's background) stay ignored.
#pragma once

#include <csignal>
#include <memory>
#include <span>

#include "world/real/readiness.h"

namespace tutti {

class Signals {
 public:
  static Result<std::unique_ptr<Signals>> create(Loop& loop, std::span<const int> numbers);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The next of the signals; of several of one kind that nobody waited for, one is kept.
  Task<Result<int>> next();

  // Lets the signal do what it does to a process that knows nothing of it: stop it until it is
  // continued, or end it. Returns unless it ends.
  static void act_by_default(int number);

 private:
  explicit Signals(Loop& loop) : loop_(loop) {}

  Loop& loop_;
  Handle fd_;
  Readiness readiness_;
  sigset_t before_;
};

}  // namespace tutti
