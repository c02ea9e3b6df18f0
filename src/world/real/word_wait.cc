#include "world/real/word_wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace tutti {

namespace {

// A cancel that comes just before its thread falls asleep wakes nobody; the thread then notices
// within this time.
constexpr Duration kSlice = 50ms;
// Threads wait with this bit alone, so that ending one wait disturbs few others.
constexpr uint32_t kCancelBit = 1U << 31;
constexpr int kSharedWord32 = 2;  // FUTEX2_SIZE_U32, and not FUTEX2_PRIVATE

long futex(const std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* until,
           uint32_t bits) {
  return syscall(SYS_futex, &word, operation, value, until, nullptr, bits);
}

Instant monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return instant_from_ns(now.tv_sec * 1'000'000'000 + now.tv_nsec);
}

}  // namespace

void futex_wake_all(const std::atomic<uint32_t>& word) {
  futex(word, FUTEX_WAKE, INT_MAX, nullptr, 0);
}

bool RingWordWait::await_ready() {
  if (cancelled_already()) {
    result_ = fail(cancelled_error());
    return true;
  }
  ring_.submit(*this);
  return done_;
}

void RingWordWait::await_suspend(std::coroutine_handle<> coroutine) {
  park(coroutine);
  if (deadline_ != kNever) clock_.arm(*this, deadline_);
}

void RingWordWait::prepare(io_uring_sqe& entry) {
  io_uring_prep_rw(kRingFutexWait, &entry, kSharedWord32, &word_, 0, expected_);
  entry.addr3 = FUTEX_BITSET_MATCH_ANY;
}

// Woken, or the word had another value: both are what was waited for, also when it was about to
// be given up.
void RingWordWait::done(int result) {
  done_ = true;
  clock_.disarm(*this);
  if (result == 0 || result == -EAGAIN) {
    result_ = {};
  } else if (result != -ECANCELED) {
    result_ = fail_errno(-result, "wait on a word of memory");
  }
  if (parked()) wake();
}

void RingWordWait::end_with(Error error) {
  if (std::exchange(ending_, true)) return;
  result_ = fail(std::move(error));
  ring_.cancel(*this);
}

bool ThreadWordWait::await_ready() {
  job_.cancelled = cancelled_already();
  return job_.cancelled;
}

void ThreadWordWait::await_suspend(std::coroutine_handle<> coroutine) {
  park(coroutine);
  pool_.submit(job_);
}

Result<void> ThreadWordWait::await_resume() {
  if (job_.error != 0) return fail_errno(job_.error, "wait on a word of memory");
  if (job_.late) return fail(Code::deadline, "the word did not change in time");
  if (job_.cancelled) return fail(cancelled_error());
  return {};
}

void ThreadWordWait::on_cancel() {
  job_.cancelled = true;
  if (pool_.withdraw(job_)) return wake();
  futex(job_.word, FUTEX_WAKE_BITSET, INT_MAX, nullptr, kCancelBit);
}

void ThreadWordWait::Job::work() {
  while (!cancelled) {
    const Instant now = monotonic_now();
    late = now >= deadline;
    if (late) return;
    const int64_t until_ns = to_ns(std::min(deadline, now + kSlice));
    const timespec until{until_ns / 1'000'000'000, until_ns % 1'000'000'000};
    if (futex(word, FUTEX_WAIT_BITSET, expected, &until, kCancelBit) == 0) return;
    if (errno == EAGAIN) return;  // it has another value
    if (errno == ETIMEDOUT || errno == EINTR) continue;
    error = errno;
    return;
  }
}

}  // namespace tutti
