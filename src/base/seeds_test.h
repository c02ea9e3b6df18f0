// For tests: how often to repeat what is random, or large.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti {

// The thread sanitizer takes ten times as long, and finds in a few repetitions what it can find.
constexpr uint64_t seeds(uint64_t usual) {
#ifdef __SANITIZE_THREAD__
  return std::max<uint64_t>(usual / 20, 3);
#else
  return usual;
#endif
}

}  // namespace tutti
