// Memory shared between processes of this Linux host. Of the loop's thread.
//
// Waiting on a word looks at it for a moment, then lets the kernel watch it: through io_uring where
// it can (Linux 6.7), else with a futex on a thread per wait. Nothing is started before that.
#pragma once

#include "world/memory.h"
#include "world/real/blocking_pool.h"
#include "world/real/uring.h"

namespace tutti {

enum class WordWatch : unsigned char { best, threads };

class RealMemory final : public Memory {
 public:
  explicit RealMemory(Loop& loop, WordWatch watch = WordWatch::best);

  // Sealed: it never becomes smaller, so what is mapped stays.
  Result<Handle> create_arena(std::string name, uint64_t size) override;
  Result<uint64_t> arena_size(const Handle& arena) override;
  Result<std::unique_ptr<Mapping>> map(const Handle& arena, uint64_t offset, uint64_t size,
                                       bool writable) override;
  // Code::exhausted past kMostOnRing waits at once, or kMostThreads without io_uring.
  Task<Result<void>> wait(const std::atomic<uint32_t>& word, uint32_t expected,
                          Instant deadline) override;
  void wake_all(std::atomic<uint32_t>& word) override;

  bool on_ring();

  static constexpr unsigned kMostThreads = 64;
  static constexpr unsigned kMostOnRing = 1024;

 private:
  Task<Result<void>> watch(const std::atomic<uint32_t>& word, uint32_t expected, Instant deadline);

  Loop& loop_;
  BlockingPool pool_;
  std::unique_ptr<Uring> ring_;
  bool ring_wanted_;  // and not yet tried
  unsigned waiting_ = 0;
};

}  // namespace tutti
