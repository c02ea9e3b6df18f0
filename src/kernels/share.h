// How threads share a kernel's work: in contiguous parts, as even as whole units allow, or in
// turns, where those that are faster do more.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tutti {

struct Part {
  int64_t first;
  int64_t end;
};

inline Part part_of(int64_t count, int64_t part, int64_t parts, int64_t unit = 1) {
  const int64_t units = (count + unit - 1) / unit;
  return {std::min(count, units * part / parts * unit),
          std::min(count, units * (part + 1) / parts * unit)};
}

// Pieces of work are counted; whoever is free takes the next one. Results do not depend on who does
// what. Between two uses the threads meet.
class Turns {
 public:
  Turns() = default;
  // Those that one thread would have if each took as many: for threads that share nothing.
  Turns(int thread, int threads) : next_(thread), step_(threads) {}

  int64_t take() { return next_.fetch_add(step_, std::memory_order_relaxed); }
  void begin() { next_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> next_ = 0;
  int64_t step_ = 1;
};

}  // namespace tutti
