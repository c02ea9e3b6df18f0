#include "fabric/engine_job.h"

#include <optional>
#include <utility>

namespace tutti {

std::shared_ptr<EngineJob> EngineJob::begin(Engine& engine,
                                            std::function<Task<Result<void>>()> make,
                                            std::function<void()> ring) {
  auto job = std::make_shared<EngineJob>(engine);
  const bool posted = engine.post([job, make = std::move(make), ring = std::move(ring)] mutable {
    job->engine_.scope().spawn(carry_out(job, std::move(make), std::move(ring)));
  });
  if (!posted) job->end(fail(Code::unavailable, "the engine of this rank has ended"));
  return job;
}

void EngineJob::cancel() {
  if (std::exchange(cancel_asked_, true) || done()) return;
  (void)engine_.post([job = shared_from_this()] {
    job->cancelled_ = true;
    if (job->scope_ != nullptr) job->scope_->cancel();
  });
}

void EngineJob::end(Result<void> result) {
  result_ = std::move(result);
  done_.store(true, std::memory_order_release);
}

Task<void> EngineJob::carry_out(std::shared_ptr<EngineJob> job,
                                std::function<Task<Result<void>>()> make,
                                std::function<void()> ring) {
  std::optional<Result<void>> outcome;
  {
    Scope scope;
    job->scope_ = &scope;
    if (job->cancelled_) scope.cancel();
    scope.spawn(detail::keep_result(make(), outcome));
    (void)co_await scope.join();
    job->scope_ = nullptr;
  }
  make = nullptr;  // what it refers to may go once the job is done
  job->end(std::move(*outcome));
  ring();
}

}  // namespace tutti
