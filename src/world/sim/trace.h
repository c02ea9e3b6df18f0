// What happened, as one number and as the last few thousand events. Two runs with equal hashes took
// the same events in the same order at the same times.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "world/sim/event.h"

namespace tutti {

struct TraceEvent {
  int64_t at_ns;
  uint32_t host;
  EventKind kind;
  uint32_t detail;
};

class Trace {
 public:
  void add(int64_t at_ns, uint32_t host, EventKind kind, uint32_t detail) {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
    const uint64_t what = (uint64_t{host} << 32 | detail) + (static_cast<uint64_t>(kind) << 56);
    hash_ = (std::rotl(hash_, 23) ^ static_cast<uint64_t>(at_ns)) * kOdd;
    hash_ = (std::rotl(hash_, 29) ^ what) * kOdd;
    ring_[count_++ % kKept] = {at_ns, host, kind, detail};
  }

  uint64_t hash() const { return hash_; }
  uint64_t count() const { return count_; }

  // The last events kept of one host, or of all, oldest first.
  std::vector<TraceEvent> last_of(uint32_t host, size_t limit) const;
  std::vector<TraceEvent> last(size_t limit) const;

 private:
  static constexpr size_t kKept = 8192;  // fits in the second-level cache
  uint64_t hash_ = 0;
  uint64_t count_ = 0;
  std::array<TraceEvent, kKept> ring_{};
};

std::string format_trace_event(const TraceEvent& event);

}  // namespace tutti
