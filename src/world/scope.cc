#include "world/scope.h"

namespace tutti {

namespace {
// Set while frames are destroyed without being run: their scopes may then die unjoined.
thread_local constinit bool killing = false;
}  // namespace

Scope::Scope() : parent_(Strand::current()) {
  TUTTI_ASSERT(parent_ != nullptr, "a scope without a strand is made with Scope::Root");
  outer_ = std::exchange(parent_->innermost_scope_, this);
  cancelled_ = parent_->cancelled();
}

Scope::~Scope() {
  if (size_ != 0) {
    TUTTI_ASSERT(killing, "a scope must be joined before it dies");
    kill();
  }
  if (parent_ == nullptr) return;
  Scope** link = &parent_->innermost_scope_;
  while (*link != this) link = &(*link)->outer_;
  *link = outer_;
}

void Scope::spawn(Task<void> task) { add(task.release(), false); }
void Scope::spawn(Task<Result<void>> task) { add(task.release(), true); }

void Scope::add(std::coroutine_handle<> root, bool fallible) {
  auto* strand = new Strand(*this, root, fallible);
  strand->cancel_requested_ = cancelled_;
  strand->previous_sibling_ = last_;
  (last_ == nullptr ? first_ : last_->next_sibling_) = strand;
  last_ = strand;
  ++size_;
  strand->start();
}

void Scope::remove(Strand& strand) {
  (strand.previous_sibling_ == nullptr ? first_ : strand.previous_sibling_->next_sibling_) =
      strand.next_sibling_;
  (strand.next_sibling_ == nullptr ? last_ : strand.next_sibling_->previous_sibling_) =
      strand.previous_sibling_;
  --size_;
  if (size_ == 0 && joining_ != nullptr) std::exchange(joining_, nullptr)->wake();
}

void Scope::cancel() {
  if (cancelled_) return;
  cancelled_ = true;
  for (Strand* strand = first_; strand != nullptr; strand = strand->next_sibling_)
    strand->request_cancel();
}

void Scope::cancel(Error why) {
  if (!cancelled_ && !error_) error_ = std::move(why);
  cancel();
}

void Scope::child_failed(const Error& error) {
  if (cancelled_ && error.code() == Code::cancelled) return;
  if (!error_) error_ = error;
  cancel();
}

void Scope::kill() {
  const bool outer = std::exchange(killing, true);
  while (last_ != nullptr) {
    Strand* strand = last_;
    last_ = strand->previous_sibling_;
    (last_ == nullptr ? first_ : last_->next_sibling_) = nullptr;
    --size_;
    strand->root_.destroy();
    delete strand;
  }
  killing = outer;
}

bool Scope::Join::await_ready() {
  if (scope_.size_ != 0 && cancelled_already()) scope_.cancel();
  return scope_.size_ == 0;
}

void Scope::Join::await_suspend(std::coroutine_handle<> coroutine) {
  TUTTI_ASSERT(scope_.joining_ == nullptr, "one strand joins a scope");
  park(coroutine);
  scope_.joining_ = this;
}

Result<void> Scope::Join::await_resume() {
  if (scope_.error_) return fail(*scope_.error_);
  if (cancelled_already()) return fail(cancelled_error());
  return {};
}

void Scope::Join::on_cancel() { scope_.cancel(); }

}  // namespace tutti
