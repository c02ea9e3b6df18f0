// Something that strands of an engine do for another thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/result.h"
#include "world/engine.h"
#include "world/task.h"

namespace tutti {

// The other thread looks whether it is done.
class EngineJob final : public std::enable_shared_from_this<EngineJob> {
 public:
  // Made on the engine by `make`; `ring` is called there when it is done.
  static std::shared_ptr<EngineJob> begin(Engine& engine, std::function<Task<Result<void>>()> make,
                                          std::function<void()> ring);
  explicit EngineJob(Engine& engine) : engine_(engine) {}

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Once it is done.
  const Result<void>& result() const { return result_; }
  // It is done soon after; by the thread that began it.
  void cancel();
  void wait() const { engine_.wait_until(done_); }

 private:
  static Task<void> carry_out(std::shared_ptr<EngineJob> job,
                              std::function<Task<Result<void>>()> make, std::function<void()> ring);
  void end(Result<void> result);

  Engine& engine_;
  bool cancel_asked_ = false;
  // Of the engine.
  Scope* scope_ = nullptr;
  bool cancelled_ = false;

  Result<void> result_;
  std::atomic<bool> done_ = false;
};

}  // namespace tutti
