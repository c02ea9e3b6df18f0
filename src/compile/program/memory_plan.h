// Where buffers that live for a while lie in one arena: those that live at the same time apart, the
// others wherever there is room. The peak is known before anything runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

struct Lifetime {
  int64_t bytes;
  uint32_t first;  // the step that makes it
  uint32_t last;   // the last that reads it; both are within
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one for each lifetime, multiples of 64
  int64_t bytes;
};

// Greedy, largest first.
MemoryPlan plan_memory(std::span<const Lifetime> lifetimes);

}  // namespace tutti
