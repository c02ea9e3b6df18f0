// Which elements of a vector are whose: arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tutti {

struct Share {
  uint64_t first = 0;
  uint64_t elements = 0;
};

// Equal shares, each beginning at a cache line of a vector that does.
inline Share even_share(uint64_t elements, uint64_t element_bytes, uint32_t size, uint32_t index) {
  constexpr uint64_t kLine = 64;
  const uint64_t line = std::max<uint64_t>(kLine / element_bytes, 1);
  const uint64_t each = ((elements + size - 1) / size + line - 1) / line * line;
  const uint64_t first = std::min(elements, index * each);
  return {first, std::min(each, elements - first)};
}

inline Share counted_share(const std::vector<uint64_t>& counts, uint32_t index) {
  return {std::accumulate(counts.begin(), counts.begin() + index, uint64_t{0}), counts[index]};
}

// Of a reduce_scatter: equal ones, or as counted.
inline Share scattered_share(uint64_t elements, const std::vector<uint64_t>& counts, uint32_t size,
                             uint32_t index) {
  if (!counts.empty()) return counted_share(counts, index);
  return {index * (elements / size), elements / size};
}

}  // namespace tutti
