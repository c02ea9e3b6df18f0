#include "loop_thread.h"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

namespace nb = nanobind;
using tutti::Code;
using tutti::fail;

// How soon Ctrl-C is noticed.
constexpr auto kSignalPause = std::chrono::milliseconds(50);

class LoopThread::Cancel final : public tutti::Runnable {
 public:
  explicit Cancel(Call& call) : call_(call) {}
  std::binary_semaphore done{0};

 private:
  void run() override {
    if (call_.scope_ != nullptr) call_.scope_->cancel();
    done.release();
  }
  Call& call_;
};

LoopThread::LoopThread() : process_(getpid()) {
  // Signals are Python's: no other thread shall be given them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_.emplace([this] { main(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  started_.acquire();
}

void LoopThread::main() {
  tutti::RealWorld world({.spin = tutti::Duration(0)});
  world_ = &world;
  world.run(serve());
}

tutti::Task<void> LoopThread::serve() {
  tutti::Scope strands;
  strands_ = &strands;
  ending_ = std::make_unique<tutti::Alarm>(world_->clock());
  started_.release();
  (void)co_await ending_->until(tutti::kNever);
  strands.cancel();
  (void)co_await strands.join();
  if (last_) co_await last_();
}

bool LoopThread::post(tutti::Runnable& runnable) {
  const std::lock_guard lock(lock_);
  if (open_) world_->loop().post_from_any_thread(runnable);
  return open_;
}

tutti::Task<void> LoopThread::carry_out(LoopThread& owner, Call& call) {
  tutti::Scope scope;
  call.scope_ = &scope;
  scope.spawn(call.work(*owner.world_));
  (void)co_await scope.join();
  call.scope_ = nullptr;
  call.done.release();  // the caller may be gone from here on
}

tutti::Result<void> LoopThread::await(Call& call) {
  if (process_ != getpid())
    return fail(Code::unsupported,
                "this Cluster was made before the process was forked; make another one here");
  if (!post(call)) return fail(Code::unavailable, "this Cluster is closed");
  while (true) {
    {
      const nb::gil_scoped_release others_may_run;
      if (call.done.try_acquire_for(kSignalPause)) return {};
    }
    if (PyErr_CheckSignals() == 0) continue;
    Cancel cancel(call);
    const nb::gil_scoped_release others_may_run;
    if (post(cancel)) cancel.done.acquire();
    call.done.acquire();
    break;
  }
  throw nb::python_error();
}

void LoopThread::stop() {
  if (!thread_) return;
  if (process_ != getpid()) {
    // The thread is the parent's.
    new std::thread(std::move(*thread_));
    thread_.reset();
    return;
  }
  class Stop final : public tutti::Runnable {
   public:
    explicit Stop(LoopThread& owner) : owner_(owner) {}

   private:
    void run() override { owner_.ending_->ring(); }
    LoopThread& owner_;
  } stop(*this);
  {
    const std::lock_guard lock(lock_);
    open_ = false;
    world_->loop().post_from_any_thread(stop);
  }
  thread_->join();
  thread_.reset();
}
