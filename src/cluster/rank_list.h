// Sets of ranks as people read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// "rank 3", "ranks 0-2,4-31"; the ranks in any order, each once.
std::string format_ranks(std::vector<uint32_t> ranks);
// By labels such as "worker 3", where there are some: "worker 3-4, prep 0".
std::string format_ranks(std::vector<uint32_t> ranks, std::span<const std::string> labels);

struct RankLabel {
  std::string_view role;
  uint32_t rank = 0;  // within the role
};
// Of "worker 3".
RankLabel split_label(std::string_view label);

}  // namespace tutti
