// Memory that several processes of a host share, and waiting on a word of it.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "world/disk.h"
#include "world/handle.h"
#include "world/task.h"

namespace tutti {

class Scope;

// Hears that a word was woken, once. Called by whoever wakes it, or from the top of an event loop.
class WakeTaker {
 public:
  virtual void on_wake(uint64_t tag) = 0;

 protected:
  ~WakeTaker() = default;
};

class Memory {
 public:
  virtual ~Memory() = default;

  // A zeroed arena (a memfd). The name is for people looking at /proc.
  virtual Result<Handle> create_arena(std::string name, uint64_t size) = 0;
  virtual Result<uint64_t> arena_size(const Handle& arena) = 0;
  // At any address: use offsets, never pointers, inside an arena.
  virtual Result<std::unique_ptr<Mapping>> map(const Handle& arena, uint64_t offset, uint64_t size,
                                               bool writable) = 0;

  // Waits until the word is no longer `expected`, somebody wakes it, or the deadline passes
  // (Code::deadline). The word may be in memory shared with other processes.
  virtual Task<Result<void>> wait(const std::atomic<uint32_t>& word, uint32_t expected,
                                  Instant deadline) = 0;
  virtual void wake_all(std::atomic<uint32_t>& word) = 0;

  // The other way: the taker hears that the word at `offset` of the mapping changed or was woken,
  // with the tag that it gave, unless the scope is cancelled before. The mapping must stay until
  // then, but may rest. What waits is the scope's, or nothing at all: there may be a million words.
  virtual void tell_wake(const Mapping& mapping, uint64_t offset, uint32_t expected,
                         WakeTaker& taker, uint64_t tag, Scope& scope);

 protected:
  static const std::atomic<uint32_t>& word_at(const Mapping& mapping, uint64_t offset);
};

}  // namespace tutti
