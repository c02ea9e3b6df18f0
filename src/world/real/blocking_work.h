// Work that can only block, done on a thread of a pool while the strand waits.
//
//   BlockingWork work(pool, [&] { answer = ask_somebody_slow(); });
//   CO_TRY_DO(co_await work);
//
// What has begun is finished before a cancelled strand goes on: the work may use its variables.
#pragma once

#include <functional>
#include <utility>

#include "world/executor.h"
#include "world/real/blocking_pool.h"

namespace tutti {

class BlockingWork final : public Waiter {
 public:
  BlockingWork(BlockingPool& pool, std::function<void()> work)
      : pool_(pool), job_(*this, std::move(work)) {}

  bool await_ready() {
    cancelled_ = cancelled_already();
    return cancelled_;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    pool_.submit(job_);
  }
  // Code::cancelled when it was not begun.
  Result<void> await_resume() const {
    if (cancelled_) return fail(cancelled_error());
    return {};
  }

 private:
  struct Job final : BlockingPool::Job {
    Job(BlockingWork& waiter, std::function<void()> what) : waiter(waiter), what(std::move(what)) {}
    void work() override { what(); }
    void run() override { waiter.wake(); }
    BlockingWork& waiter;
    std::function<void()> what;
  };
  void on_cancel() override {
    if (!pool_.withdraw(job_)) return;
    cancelled_ = true;
    wake();
  }

  BlockingPool& pool_;
  Job job_;
  bool cancelled_ = false;
};

}  // namespace tutti
