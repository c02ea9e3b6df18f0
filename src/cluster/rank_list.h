// Sets of ranks as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

// "rank 3", "ranks 0-2,4-31"; the ranks in any order, each once.
std::string format_ranks(std::vector<uint32_t> ranks);

}  // namespace tutti
