// Sums over all elements of a tensor add up canonical chunks of it, and join these in one order.
// Every boundary of a shard is a multiple of a chunk, or the tensor's end, so that whoever has
// which shard finds the same bits.
#pragma once

#include <cstdint>

namespace tutti {

constexpr int64_t kChunkElements = 4096;

constexpr int64_t chunks_of(int64_t elements) {
  return (elements + kChunkElements - 1) / kChunkElements;
}

}  // namespace tutti
