// How full bounded queues have been, and that none is ever fuller than it may be.
//
//   TUTTI_QUEUE("courier: bytes that wait for a peer", queued(), most);
//
// stands behind a push, in .cc files. Whoever pushes has refused, waited or dropped before that
// where there was no room, so an overfull queue is a mistake of ours: the assertion stays on in
// release. Names are unique. Marks may be made from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace tutti {

// Marks stand in a section of the program, so that one is known even when its line never ran. The
// alignment keeps the section an array.
struct alignas(64) QueueMark {
  const char* name;
  // Of the moment when it was fullest, for its limit.
  std::atomic<uint64_t> highest = 0;
  std::atomic<uint64_t> limit = 0;

  void note(uint64_t depth, uint64_t most) {
    if (!fits(depth, most)) [[unlikely]]
      overfull(depth, most);
  }
  bool fits(uint64_t depth, uint64_t most) {
    if (depth > highest.load(std::memory_order_relaxed)) [[unlikely]] {
      highest.store(depth, std::memory_order_relaxed);
      limit.store(most, std::memory_order_relaxed);
    }
    return depth <= most;
  }

 private:
  [[noreturn]] void overfull(uint64_t depth, uint64_t most) const;
};

// All marks of this program, by name.
std::vector<const QueueMark*> queue_marks();

}  // namespace tutti

#define TUTTI_QUEUE(name, depth, most)                                                          \
  do {                                                                                          \
    [[gnu::section("tutti_queues"), gnu::used]] static constinit ::tutti::QueueMark queue_mark{ \
        name};                                                                                  \
    queue_mark.note(depth, most);                                                               \
  } while (false)
