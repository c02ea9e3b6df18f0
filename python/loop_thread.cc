#include "loop_thread.h"

#include <nanobind/nanobind.h>

#include <chrono>

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

tutti::Task<void> LoopThread::carry_out(LoopThread& owner, Call& call) {
  tutti::Scope scope;
  call.scope_ = &scope;
  scope.spawn(call.work(owner.engine_.world()));
  (void)co_await scope.join();
  call.scope_ = nullptr;
  call.done.release();  // the caller may be gone from here on
}

tutti::Result<void> LoopThread::await(Call& call) {
  if (!engine_.here())
    return fail(Code::unsupported,
                "this Cluster was made before the process was forked; make another one here");
  if (!engine_.post(call)) return fail(Code::unavailable, "this Cluster is closed");
  while (true) {
    {
      const nb::gil_scoped_release others_may_run;
      if (call.done.try_acquire_for(kSignalPause)) return {};
    }
    if (PyErr_CheckSignals() == 0) continue;
    Cancel cancel(call);
    const nb::gil_scoped_release others_may_run;
    if (engine_.post(cancel)) cancel.done.acquire();
    call.done.acquire();
    break;
  }
  throw nb::python_error();
}
