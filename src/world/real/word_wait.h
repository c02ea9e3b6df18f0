// Waits on one word of memory, without the loop standing still.
#pragma once

#include <atomic>

#include "base/units.h"
#include "world/clock.h"
#include "world/real/blocking_pool.h"
#include "world/real/uring.h"

namespace tutti {

// The opcode that a ring must know.
constexpr int kRingFutexWait = 51;  // IORING_OP_FUTEX_WAIT; younger than the header we build with

void futex_wake_all(const std::atomic<uint32_t>& word);

// co_await gives Result<void>: an error is Code::deadline, Code::cancelled or a bad address. The
// word must stay mapped until then.
class RingWordWait final : public Waiter, private Timer, private Uring::Request {
 public:
  RingWordWait(Uring& ring, Clock& clock, const std::atomic<uint32_t>& word, uint32_t expected,
               Instant deadline)
      : ring_(ring), clock_(clock), word_(word), expected_(expected), deadline_(deadline) {}
  bool await_ready();
  void await_suspend(std::coroutine_handle<> coroutine);
  Result<void> await_resume() { return std::move(result_); }

 private:
  void prepare(io_uring_sqe& entry) override;
  void done(int result) override;
  void fire() override { end_with({Code::deadline, "the word did not change in time"}); }
  void on_cancel() override { end_with(cancelled_error()); }
  void end_with(Error error);

  Uring& ring_;
  Clock& clock_;
  const std::atomic<uint32_t>& word_;
  uint32_t expected_;
  Instant deadline_;
  bool done_ = false;
  bool ending_ = false;
  Result<void> result_;
};

class ThreadWordWait final : public Waiter {
 public:
  ThreadWordWait(BlockingPool& pool, const std::atomic<uint32_t>& word, uint32_t expected,
                 Instant deadline)
      : pool_(pool), job_(*this, word, expected, deadline) {}
  bool await_ready();
  void await_suspend(std::coroutine_handle<> coroutine);
  Result<void> await_resume();

 private:
  struct Job final : BlockingPool::Job {
    Job(ThreadWordWait& wait, const std::atomic<uint32_t>& word, uint32_t expected,
        Instant deadline)
        : wait(wait), word(word), expected(expected), deadline(deadline) {}
    void work() override;
    void run() override { wait.wake(); }

    ThreadWordWait& wait;
    const std::atomic<uint32_t>& word;
    const uint32_t expected;
    const Instant deadline;
    std::atomic<bool> cancelled = false;
    bool late = false;
    int error = 0;
  };
  void on_cancel() override;

  BlockingPool& pool_;
  Job job_;
};

}  // namespace tutti
