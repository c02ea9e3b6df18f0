#include "cluster/rank_list.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {

std::string format_ranks(std::vector<uint32_t> ranks) {
  std::ranges::sort(ranks);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (first != 0) text += ',';
    text += first == last ? fmt::format("{}", ranks[first])
                          : fmt::format("{}-{}", ranks[first], ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace tutti
