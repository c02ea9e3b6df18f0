// Carries out disk requests: on a ring when the kernel allows one, else on a few threads. Nothing
// is started before the first request. Of the loop's thread.
#pragma once

#include <optional>

#include "world/real/blocking_pool.h"
#include "world/real/disk_request.h"
#include "world/real/uring.h"

namespace tutti {

enum class DiskBackEnd : unsigned char { best, threads };

class DiskEngine {
 public:
  DiskEngine(Loop& loop, DiskBackEnd back_end);

  // Whether requests go to a ring; starts it when it was not.
  bool on_ring();

  // co_await gives the result, or the error as a negative number. The buffers of a request belong
  // to the kernel until then: one that is cancelled ends only when the kernel has let go of them,
  // with -ECANCELED or, when it was too late, with what it came to.
  class Operation;

 private:
  friend Operation;
  Loop& loop_;
  BlockingPool pool_;
  std::unique_ptr<Uring> ring_;
  bool ring_wanted_;  // and not yet tried
};

class DiskEngine::Operation final : public Waiter {
 public:
  Operation(DiskEngine& engine, DiskRequest request) : engine_(engine), request_(request) {}
  bool await_ready();
  void await_suspend(std::coroutine_handle<> coroutine) { park(coroutine); }
  int64_t await_resume() const { return *result_; }

 private:
  struct OnRing final : Uring::Request {
    explicit OnRing(Operation& operation) : operation(operation) {}
    void prepare(io_uring_sqe& entry) override { tutti::prepare(operation.request_, entry); }
    void done(int result) override { operation.finish(result); }
    Operation& operation;
  };
  struct OnThread final : BlockingPool::Job {
    explicit OnThread(Operation& operation) : operation(operation) {}
    void work() override { result = perform(operation.request_); }
    void run() override { operation.finish(result); }
    Operation& operation;
    int64_t result = 0;
  };

  void finish(int64_t result) {
    result_ = result;
    if (parked()) wake();
  }
  void on_cancel() override;

  DiskEngine& engine_;
  DiskRequest request_;
  OnRing on_ring_{*this};
  OnThread on_thread_{*this};
  bool ringed_ = false;
  std::optional<int64_t> result_;
};

}  // namespace tutti
