#include "world/real/memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "world/real/errors.h"
#include "world/real/fd.h"
#include "world/real/mapping.h"
#include "world/real/word_wait.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

namespace tutti {

namespace {

constexpr size_t kMostNameBytes = 249;  // the kernel's limit
// About a microsecond: as long as the loop may stand still, and as a peer on another core needs to
// answer.
constexpr int kLooks = 32;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int make_memfd(const std::string& name) {
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd >= 0 || errno != EINVAL) return fd;
  return memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);  // before Linux 6.3
}

bool changes_soon(const std::atomic<uint32_t>& word, uint32_t expected) {
  for (int look = 0; look < kLooks; ++look) {
    if (word.load(std::memory_order_acquire) != expected) return true;
    pause_processor();
  }
  return false;
}

}  // namespace

RealMemory::RealMemory(Loop& loop, WordWatch watch)
    : loop_(loop), pool_(loop, kMostThreads), ring_wanted_(watch == WordWatch::best) {}

bool RealMemory::on_ring() {
  if (std::exchange(ring_wanted_, false))
    ring_ = Uring::start(loop_, kMostOnRing, {kRingFutexWait, IORING_OP_ASYNC_CANCEL});
  return ring_ != nullptr;
}

Result<Handle> RealMemory::create_arena(std::string name, uint64_t size) {
  if (size == 0) return fail(Code::invalid, "arena {} would be empty", name);
  name.resize(std::min(name.size(), kMostNameBytes));
  Handle arena = own_fd(make_memfd(name));
  if (!arena.open()) return fail_errno(errno, "make arena {}", name);
  if (size > static_cast<uint64_t>(INT64_MAX) ||
      ftruncate(arena.number(), static_cast<off_t>(size)) != 0)
    return fail(Code::exhausted, "make arena {}: {} are more than the kernel allows", name,
                format_bytes(size));
  if (fcntl(arena.number(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    return fail_errno(errno, "seal arena {}", name);
  return arena;
}

Result<uint64_t> RealMemory::arena_size(const Handle& arena) {
  struct stat info{};
  if (fstat(arena.number(), &info) != 0) return fail_errno(errno, "look at an arena");
  return static_cast<uint64_t>(info.st_size);
}

Result<std::unique_ptr<Mapping>> RealMemory::map(const Handle& arena, uint64_t offset,
                                                 uint64_t size, bool writable) {
  return map_fd(arena.number(), offset, size, writable, "an arena");
}

Task<Result<void>> RealMemory::wait(const std::atomic<uint32_t>& word, uint32_t expected,
                                    Instant deadline) {
  if (changes_soon(word, expected)) co_return {};
  // A wait that had to queue behind others could miss its word for ever.
  const unsigned most = on_ring() ? kMostOnRing : kMostThreads;
  if (waiting_ == most)
    co_return fail(Code::exhausted, "{} strands wait on words already; no more can", most);
  ++waiting_;
  auto result = co_await watch(word, expected, deadline);
  --waiting_;
  co_return result;
}

Task<Result<void>> RealMemory::watch(const std::atomic<uint32_t>& word, uint32_t expected,
                                     Instant deadline) {
  if (ring_ != nullptr) {
    RingWordWait waiting(*ring_, loop_.clock(), word, expected, deadline);
    auto result = co_await waiting;
    co_return result;
  }
  ThreadWordWait waiting(pool_, word, expected, deadline);
  auto result = co_await waiting;
  co_return result;
}

void RealMemory::wake_all(std::atomic<uint32_t>& word) { futex_wake_all(word); }

}  // namespace tutti
