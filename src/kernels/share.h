// How threads share a kernel's work: contiguous parts, as even as whole units allow.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti {

struct Part {
  int64_t first;
  int64_t end;
};

inline Part part_of(int64_t count, int thread, int threads, int64_t unit = 1) {
  const int64_t units = (count + unit - 1) / unit;
  return {std::min(count, units * thread / threads * unit),
          std::min(count, units * (thread + 1) / threads * unit)};
}

}  // namespace tutti
