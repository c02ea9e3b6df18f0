#include "world/executor.h"

#include "world/scope.h"

namespace tutti {

thread_local constinit Strand* Strand::current_ = nullptr;
thread_local constinit size_t live_frames = 0;

namespace {
thread_local constinit Executor* current_executor = nullptr;
}

Executor::Executor() : outer_(current_executor) { current_executor = this; }

Executor::~Executor() {
  TUTTI_ASSERT(current_executor == this, "executors of a thread nest");
  TUTTI_ASSERT(outer_ != nullptr || live_frames == 0, "a coroutine frame outlived its executor");
  current_executor = outer_;
}

Executor& Executor::current() {
  TUTTI_ASSERT(current_executor != nullptr, "this thread has no executor");
  return *current_executor;
}

void Executor::run_round() {
  List<Runnable> round;
  round.splice_back(ready_);
  while (!round.empty()) round.pop_front().run();
}

void Executor::run_ready() {
  while (!ready_.empty()) ready_.pop_front().run();
}

// Apart from the strand, which needs no place in a queue ever after.
class Strand::Start final : public Waiter {
 public:
  explicit Start(Strand& strand) : strand_to_start_(strand) {}

 private:
  void run() override {
    Strand& strand = strand_to_start_;
    strand.waiting_ = nullptr;
    delete this;
    strand.resume(strand.root_);
  }
  void on_cancel() override {}  // the strand finds out when it waits
  Strand& strand_to_start_;
};

void Strand::start() {
  auto* start = new Start(*this);
  waiting_ = start;
  Executor::current().post(*start);
}

// Whatever waits in a frame has left with it.
Strand::~Strand() { delete static_cast<Start*>(waiting_); }

void Strand::resume(std::coroutine_handle<> coroutine) {
  Strand* outer = std::exchange(current_, this);
  coroutine.resume();
  current_ = outer;
  if (finished_) reap();
}

void Strand::request_cancel() {
  if (cancel_requested_) return;
  cancel_requested_ = true;
  if (shields_ != 0) return;
  for (Scope* scope = innermost_scope_; scope != nullptr; scope = scope->outer_) scope->cancel();
  if (waiting_ != nullptr) waiting_->on_cancel();
}

void Strand::reap() {
  Scope& scope = *scope_;
  std::optional<Error> error;
  if (fallible_) {
    using Root = Task<Result<void>>::Handle;
    Result<void>& result = Root::from_address(root_.address()).promise().value;
    if (!result) error = std::move(result).error();
  }
  root_.destroy();
  if (error) scope.child_failed(*error);
  scope.remove(*this);
  delete this;
}

void Waiter::wake() {
  TUTTI_ASSERT(parked(), "only a parked waiter is woken, and once");
  strand_->waiting_ = nullptr;
  unlink();
  Executor::current().post(*this);
}

}  // namespace tutti
