#include "base/suggest.h"

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

// Nobody mistypes a word this long; it bounds the work done for hostile input.
constexpr size_t kLongestWord = 64;

}  // namespace

size_t edit_distance(std::string_view from, std::string_view to) {
  const size_t width = to.size() + 1;
  std::vector<size_t> before(width), above(width), row(width);
  for (size_t j = 0; j < width; ++j) row[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (size_t j = 1; j < width; ++j) {
      const bool same = from[i - 1] == to[j - 1];
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[width - 1];
}

std::optional<std::string_view> suggest(std::string_view word,
                                        std::span<const std::string_view> candidates) {
  if (word.size() > kLongestWord) return std::nullopt;
  std::optional<std::string_view> nearest;
  // One slip in three letters is still the same word.
  size_t allowed = std::max<size_t>(1, word.size() / 3);
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance > allowed || distance >= candidate.size()) continue;
    nearest = candidate;
    if (distance == 0) break;
    allowed = distance - 1;
  }
  return nearest;
}

}  // namespace tutti
