#include "kernels/attention.h"

#include <cstring>
#include <limits>

#include "base/assert.h"
#include "kernels/attention_rows.h"
#include "kernels/share.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include <hwy/foreach_target.h>

#include "kernels/attention_tile.inc"
#include "kernels/lanes.inc"

#ifndef TUTTI_KERNELS_ATTENTION_BUFFERS
#define TUTTI_KERNELS_ATTENTION_BUFFERS
namespace tutti {

// The workspace of one thread. Keys and values are packed when the first block of rows meets them,
// and stay only when there are more blocks of rows to come.
struct AttentionBuffers {
  int64_t key_stride;  // of a block of packed keys, and of values
  int64_t blocks;      // of keys that stay
  float* keys;         // [blocks][panel][head size][16]
  float* values;       // [blocks][kBlock][padded head size]
  float* q;            // [kBlock][padded head size], times the scale
  float* scores;       // [kBlock][kBlock]
  float* out;          // [kBlock][padded head size]
  float* highest;      // [kBlock]
  float* sums;         // [kBlock][16]: of exponentials, by lane

  AttentionBuffers(const AttentionShape& shape, Workspace& workspace) {
    const int64_t width = padded(shape.head_size);
    const int64_t rows = shape.queries * (shape.query_heads / shape.kv_heads);
    blocks = rows > kBlock ? (shape.keys + kBlock - 1) / kBlock : 1;
    key_stride = kBlock * width;
    keys = workspace.floats(blocks * key_stride);
    values = workspace.floats(blocks * key_stride);
    q = workspace.floats(kBlock * width);
    scores = workspace.floats(kBlock * kBlock);
    out = workspace.floats(kBlock * width);
    highest = workspace.floats(kBlock);
    sums = workspace.floats(kBlock * kLanes);
  }
};

}  // namespace tutti
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

void pack_keys(const Attention& a, const HeadRows& head, const AttentionBlock& block, float* keys,
               float* values) {
  const int64_t size = a.shape.head_size;
  pack_transposed(a.k.at(head.batch, head.kv_head, block.first_key), a.k.time_stride, block.keys,
                  size, keys);
  const float* from = a.v.at(head.batch, head.kv_head, block.first_key);
  for (int64_t key = 0; key < block.keys; ++key, from += a.v.time_stride) {
    if (key + kRowsAhead < block.keys) prefetch_row(from + kRowsAhead * a.v.time_stride, size);
    pack_row(from, size, 1, values + key * padded(size));
  }
}

// The highest score of a row. Scores of keys that it does not see become minus infinity.
HWY_INLINE float highest_score(float* scores, int64_t seen) {
  const Sixteen least = splat(-std::numeric_limits<float>::infinity());
  const int64_t whole = seen / kLanes * kLanes;
  Sixteen most = least;
  for (int64_t i = 0; i < whole; i += kLanes) most = max(load(scores + i), most);
  if (whole < seen) {
    const Sixteen rest = first_of(static_cast<size_t>(seen - whole), load(scores + whole), least);
    store(rest, scores + whole);
    most = max(rest, most);
  }
  return max_lanes(most);
}

// Raises the heights from which exponentials are taken to the highest scores, and brings the sums
// so far to them.
void raise_rows(const HeadRows& head, const AttentionBlock& block, const AttentionBuffers& b,
                int64_t width) {
  HWY_ALIGN float factors[kBlock] = {};
  for (int64_t row = 0; row < block.rows; ++row) {
    const float here = highest_score(b.scores + row * kBlock,
                                     head.seen(block.first_row + row, block.first_key, block.keys));
    if (!(here > b.highest[row])) continue;
    factors[row] = b.highest[row] - here;
    b.highest[row] = here;
  }
  if (block.first_key == 0) return;
  for (int64_t row = 0; row < kBlock; row += kLanes) store(exp(load(factors + row)), factors + row);
  for (int64_t row = 0; row < block.rows; ++row) {
    if (factors[row] == 1) continue;
    const Sixteen factor = splat(factors[row]);
    float* sums = b.sums + row * kLanes;
    store(mul(load(sums), factor), sums);
    float* out = b.out + row * width;
    for (int64_t i = 0; i < width; i += kLanes) store(mul(load(out + i), factor), out + i);
  }
}

// Scores become exponentials, and zero from what the row sees up to `depth`.
void exponentiate_row(const AttentionBuffers& b, int64_t row, int64_t seen, int64_t depth) {
  float* scores = b.scores + row * kBlock;
  Sixteen sum = load(b.sums + row * kLanes);
  const Sixteen top = splat(b.highest[row]);
  int64_t i = 0;
  for (; i < seen; i += kLanes) {
    const Sixteen e = exp(sub(load(scores + i), top));
    sum = add(sum, e);
    store(e, scores + i);
  }
  for (; i < depth; i += kLanes) store(splat(0), scores + i);
  store(sum, b.sums + row * kLanes);
}

void attend_block(const HeadRows& head, const AttentionBlock& block, const AttentionBuffers& b,
                  const float* keys, const float* values, int64_t size) {
  const int64_t width = padded(size);
  for (int64_t panel = 0; panel < block.keys; panel += kLanes)
    for (int64_t row = 0; row < block.rows; row += kAttentionTileRows)
      if (panel < block.depth(row))
        attention_tile<false, false>(size, {b.q + row * width, width},
                                     {keys + panel * size, kLanes}, b.scores + row * kBlock + panel,
                                     kBlock);
  raise_rows(head, block, b, width);
  for (int64_t row = 0; row < block.rows; ++row)
    exponentiate_row(b, row, head.seen(block.first_row + row, block.first_key, block.keys),
                     block.depth(row));
  const auto tile =
      block.first_key == 0 ? attention_tile<false, false> : attention_tile<false, true>;
  for (int64_t column = 0; column < width; column += kLanes)
    for (int64_t row = 0; row < block.rows; row += kAttentionTileRows)
      if (block.depth(row) > 0)
        tile(block.depth(row), {b.scores + row * kBlock, kBlock}, {values + column, width},
             b.out + row * width + column, width);
}

// The rows of a block, over all keys that any of them sees; `packed` keys are so far.
void attend_rows(const Attention& a, const HeadRows& head, int64_t first, const AttentionBuffers& b,
                 int64_t& packed) {
  const int64_t size = a.shape.head_size;
  const int64_t width = padded(size);
  const int64_t rows = HWY_MIN(head.count - first, kBlock);
  const int64_t spare = padded(rows, kAttentionTileRows) - rows;
  std::memset(b.q + rows * width, 0, static_cast<size_t>(spare * width) * sizeof(float));
  for (int64_t row = 0; row < rows; ++row) {
    if (row + kRowsAhead < rows) prefetch_row(head.at(a.q, first + row + kRowsAhead), size);
    pack_row(head.at(a.q, first + row), size, a.shape.scale, b.q + row * width);
  }
  std::memset(b.sums, 0, static_cast<size_t>(kBlock * kLanes) * sizeof(float));
  for (int64_t row = 0; row < kBlock; ++row)
    b.highest[row] = -std::numeric_limits<float>::infinity();
  const int64_t end = head.seen(first + rows - 1);
  for (int64_t key = 0, slot = 0; key < end; key += kBlock, ++slot) {
    const AttentionBlock block(head, first, key);
    float* keys = b.keys + slot % b.blocks * b.key_stride;
    float* values = b.values + slot % b.blocks * b.key_stride;
    if (key == packed) {
      pack_keys(a, head, block, keys, values);
      packed += kBlock;
    }
    attend_block(head, block, b, keys, values, size);
  }
  for (int64_t row = 0; row < rows; ++row) {
    if (row + kRowsAhead < rows) prefetch_row(head.at(a.out, first + row + kRowsAhead), size);
    const float sum = tutti::sum_lanes(b.sums + row * kLanes);
    unpack_row(b.out + row * width, size, 1 / sum, head.at(a.out, first + row));
    a.lse[head.lse_index(a.shape, first + row)] = b.highest[row] + log_scalar(sum);
  }
}

void attend_heads(const Attention& a, Turns& turns, std::byte* bytes) {
  Workspace workspace(bytes);
  const AttentionBuffers buffers(a.shape, workspace);
  const int64_t heads = a.shape.batch * a.shape.kv_heads;
  for (int64_t index = turns.take(); index < heads; index = turns.take()) {
    const HeadRows head(a, index);
    int64_t packed = 0;
    for (int64_t row = 0; row < head.count; row += kBlock)
      attend_rows(a, head, row, buffers, packed);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

size_t attention_workspace_bytes(const AttentionShape& shape) {
  Workspace workspace(nullptr);
  const AttentionBuffers buffers(shape, workspace);
  return workspace.bytes();
}

void attention(const Attention& given, Turns& turns, std::byte* workspace) {
  const AttentionShape& shape = given.shape;
  TUTTI_ASSERT(shape.query_heads % shape.kv_heads == 0, "heads are shared by whole groups");
  TUTTI_ASSERT(!shape.causal || shape.queries <= shape.keys, "queries are the last places");
  TUTTI_ASSERT(shape.causal || given.positions == nullptr, "queries with places look back");
  TUTTI_SIMD(attend_heads)(given, turns, workspace);
}

}  // namespace tutti
#endif
