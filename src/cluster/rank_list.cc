#include "cluster/rank_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

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

RankLabel split_label(std::string_view text) {
  const size_t space = text.rfind(' ');
  RankLabel label{text.substr(0, space), 0};
  const std::string_view digits = text.substr(space + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), label.rank);
  return label;
}

std::string format_ranks(std::vector<uint32_t> ranks, std::span<const std::string> labels) {
  if (labels.empty()) return format_ranks(std::move(ranks));
  std::ranges::sort(ranks);
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    const RankLabel begin = split_label(labels[ranks[first]]);
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1 &&
           split_label(labels[ranks[last + 1]]).role == begin.role)
      ++last;
    if (first != 0) text += ", ";
    text += fmt::format("{} {}", begin.role, begin.rank);
    if (last != first) text += fmt::format("-{}", begin.rank + (last - first));
    first = last + 1;
  }
  return text;
}

}  // namespace tutti
