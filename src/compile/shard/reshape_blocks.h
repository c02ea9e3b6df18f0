// A reshape in pieces: runs of dimensions before and after that hold the same elements.
//
// [batch=8, time=4, qkv=96] as [batch=8, time=4, heads=6, head=16] is three blocks: batch, time,
// and qkv, which is (heads, head). A dimension within a block can be split if that splits the other
// side as well; some ways of splitting have a dimension in segments (sharding.h).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "compile/type.h"

namespace tutti {

struct ReshapeBlock {
  std::vector<size_t> from;  // places of dimensions; those of size 1 are in no block
  std::vector<size_t> to;
};

std::vector<ReshapeBlock> reshape_blocks(const Type& from, const Type& to);

// Where a block is split that lies in `outer` equal segments, each split among `ranks`: the place
// of the dimension within one side of it, and how many segments that one has.
struct BlockSplit {
  size_t place;
  int64_t segments;
};
std::optional<BlockSplit> split_block(const Type& type, std::span<const size_t> side, int64_t outer,
                                      int64_t ranks);

}  // namespace tutti
