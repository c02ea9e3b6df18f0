#include "wire/budget.h"

namespace tutti::wire {

void Budget::ask(Wait& wait) {
  waiting_.push_back(wait);
  grant();
}

void Budget::withdraw(Wait& wait) {
  if (!wait.linked()) return;
  wait.unlink();
  grant();  // whoever stood behind may fit
}

Lease Budget::take(uint64_t bytes) {
  in_use_ += bytes;
  return {shared_from_this(), bytes};
}

void Budget::grant() {
  while (!waiting_.empty()) {
    const uint64_t bytes = waiting_.front().bytes;
    if (in_use_ != 0 && in_use_ + bytes > limit_) return;
    Wait& first = waiting_.pop_front();
    first.granted(take(bytes));
  }
}

}  // namespace tutti::wire
