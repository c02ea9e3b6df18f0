// How a thread that runs no loop waits for words of memory that other processes change, and what it
// may ask of mapped pages. A rank's own threads use this; daemons await World::memory() instead.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "base/units.h"

namespace tutti {

class Parking {
 public:
  virtual ~Parking() = default;
  virtual Instant now() const = 0;
  // The same to some milliseconds, for less: to note when something happened.
  virtual Instant coarse_now() const { return now(); }
  // Lets another thread have this core.
  virtual void yield() = 0;
  // Sleeps while the word is `expected`, until somebody wakes it or the time has come. May return
  // early for no reason.
  virtual void park(const std::atomic<uint32_t>& word, uint32_t expected, Instant until) = 0;
  virtual void wake_all(std::atomic<uint32_t>& word) = 0;

  // Finds memory for pages of a mapped arena, now instead of at first use, when lacking it would be
  // a signal: Code::exhausted.
  virtual Result<void> populate(MutableBytes pages) = 0;
  // Gives their memory back; they read as zeros.
  virtual void discard(MutableBytes pages) = 0;
};

}  // namespace tutti
