#include "world/real/parking.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "world/real/errors.h"
#include "world/real/word_wait.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tutti {

namespace {

// At most this much in one call, so that a rank that is told to stop is not held up for seconds.
constexpr size_t kPopulateBytes = 256 << 20;

Result<void> populate_some(MutableBytes pages) {
  if (madvise(pages.data(), pages.size(), MADV_POPULATE_WRITE) == 0) return {};
  if (errno == EINVAL) return {};  // before Linux 5.14: at first use, then
  if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON)
    return fail(Code::exhausted, "there is no memory for {} more", format_bytes(pages.size()));
  return fail_errno(errno, "find memory for {}", format_bytes(pages.size()));
}

Instant read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return instant_from_ns(now.tv_sec * 1'000'000'000 + now.tv_nsec);
}

}  // namespace

Instant RealParking::now() const { return read_clock(CLOCK_MONOTONIC); }

Instant RealParking::coarse_now() const { return read_clock(CLOCK_MONOTONIC_COARSE); }

void RealParking::yield() { sched_yield(); }

void RealParking::park(const std::atomic<uint32_t>& word, uint32_t expected, Instant until) {
  const int64_t ns = to_ns(until);
  const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, until == kNever ? nullptr : &limit,
          nullptr, FUTEX_BITSET_MATCH_ANY);
}

void RealParking::wake_all(std::atomic<uint32_t>& word) { futex_wake_all(word); }

Result<void> RealParking::populate(MutableBytes pages) {
  madvise(pages.data(), pages.size(), MADV_HUGEPAGE);  // where the kernel is set up for it
  while (!pages.empty()) {
    const MutableBytes some = pages.first(std::min(pages.size(), kPopulateBytes));
    TRY_DO(populate_some(some));
    pages = pages.subspan(some.size());
  }
  return {};
}

void RealParking::discard(MutableBytes pages) { madvise(pages.data(), pages.size(), MADV_REMOVE); }

}  // namespace tutti
