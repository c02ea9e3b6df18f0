#include "compile/shard/reshape_blocks.h"

namespace tutti {

std::vector<ReshapeBlock> reshape_blocks(const Type& from, const Type& to) {
  std::vector<ReshapeBlock> blocks;
  size_t i = 0;
  size_t j = 0;
  const auto skip_ones = [](const Type& type, size_t& at) {
    while (at < type.dims.size() && type.dims[at].size == 1) ++at;
  };
  while (true) {
    skip_ones(from, i);
    skip_ones(to, j);
    if (i == from.dims.size() || j == to.dims.size()) return blocks;
    ReshapeBlock block{.from = {i}, .to = {j}};
    int64_t before = from.dims[i++].size;
    int64_t after = to.dims[j++].size;
    while (before != after) {
      if (before < after) {
        skip_ones(from, i);
        block.from.push_back(i);
        before *= from.dims[i++].size;
      } else {
        skip_ones(to, j);
        block.to.push_back(j);
        after *= to.dims[j++].size;
      }
    }
    blocks.push_back(std::move(block));
  }
}

std::optional<BlockSplit> split_block(const Type& type, std::span<const size_t> side, int64_t outer,
                                      int64_t ranks) {
  int64_t before = 1;
  for (const size_t place : side) {
    const int64_t size = type.dims[place].size;
    // A dimension that lies whole before the split only multiplies the segments.
    if (outer % before == 0 && outer / before < size) {
      const int64_t segments = outer / before;
      if (size % segments == 0 && size / segments % ranks == 0) return BlockSplit{place, segments};
    }
    before *= size;
  }
  return std::nullopt;
}

}  // namespace tutti
