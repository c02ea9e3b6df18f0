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

// A block of rows by a block of keys.
struct AttentionBlock {
  int64_t first_row;
  int64_t rows;
  int64_t first_key;
  int64_t keys;

  // How many of its keys a tile of rows from `row` on needs, which is what its last row sees.
  int64_t depth(const HeadRows& head, int64_t row) const {
    const int64_t last = HWY_MIN(row + kAttentionTileRows, rows) - 1;
    return head.seen(first_row + last, first_key, keys);
  }
};

void pack_keys(const Attention& a, const HeadRows& head, const AttentionBlock& block, float* keys,
               float* values) {
  const int64_t size = a.shape.head_size;
  pack_transposed(a.k.at(head.batch, head.kv_head, block.first_key), a.k.time_stride, block.keys,
                  size, keys);
  for (int64_t key = 0; key < block.keys; ++key)
    pack_row(a.v.at(head.batch, head.kv_head, block.first_key + key), size, 1,
             values + key * padded(size));
}

// The scores of a row become exponentials, zero for what it does not see; its sums so far are
// brought to the same height.
void softmax_row(const AttentionBuffers& b, int64_t row, int64_t seen, int64_t depth,
                 int64_t width) {
  float* scores = b.scores + row * kBlock;
  const Sixteen least = splat(-std::numeric_limits<float>::infinity());
  const int64_t whole = seen / kLanes * kLanes;
  Sixteen most = least;
  for (int64_t i = 0; i < whole; i += kLanes) most = max(load(scores + i), most);
  if (whole < seen) {
    const Sixteen rest = first_of(static_cast<size_t>(seen - whole), load(scores + whole), least);
    store(rest, scores + whole);
    most = max(rest, most);
  }
  const float before = b.highest[row];
  const float here = max_lanes(most);
  const float now = here > before ? here : before;
  Sixteen sum = load(b.sums + row * kLanes);
  if (now != before) {
    const Sixteen factor = exp(splat(before - now));
    sum = mul(sum, factor);
    float* out = b.out + row * width;
    for (int64_t i = 0; i < width; i += kLanes) store(mul(load(out + i), factor), out + i);
    b.highest[row] = now;
  }
  const Sixteen top = splat(now);
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
      if (panel < block.depth(head, row))
        attention_tile<false, false>(size, {b.q + row * width, width},
                                     {keys + panel * size, kLanes}, b.scores + row * kBlock + panel,
                                     kBlock);
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t depth = block.depth(head, row / kAttentionTileRows * kAttentionTileRows);
    const int64_t seen = head.seen(block.first_row + row, block.first_key, block.keys);
    if (depth > 0) softmax_row(b, row, seen, depth, width);
  }
  for (int64_t column = 0; column < width; column += kLanes)
    for (int64_t row = 0; row < block.rows; row += kAttentionTileRows)
      attention_tile<false, true>(block.depth(head, row), {b.scores + row * kBlock, kBlock},
                                  {values + column, width}, b.out + row * width + column, width);
}

// The rows of a block, over all keys that any of them sees.
void attend_rows(const Attention& a, const HeadRows& head, int64_t first,
                 const AttentionBuffers& b) {
  const int64_t size = a.shape.head_size;
  const int64_t width = padded(size);
  const int64_t rows = HWY_MIN(head.count - first, kBlock);
  std::memset(b.q, 0, static_cast<size_t>(kBlock * width) * sizeof(float));
  for (int64_t row = 0; row < rows; ++row)
    pack_row(head.at(a.q, first + row), size, a.shape.scale, b.q + row * width);
  std::memset(b.out, 0, static_cast<size_t>(kBlock * width) * sizeof(float));
  std::memset(b.sums, 0, static_cast<size_t>(kBlock * kLanes) * sizeof(float));
  for (int64_t row = 0; row < kBlock; ++row)
    b.highest[row] = -std::numeric_limits<float>::infinity();
  const int64_t end = first == 0 ? head.keys : head.seen(first + rows - 1);
  for (int64_t key = 0, slot = 0; key < end; key += kBlock, ++slot) {
    const AttentionBlock block = {first, rows, key, HWY_MIN(head.keys - key, kBlock)};
    float* keys = b.keys + slot % b.blocks * b.key_stride;
    float* values = b.values + slot % b.blocks * b.key_stride;
    if (first == 0) pack_keys(a, head, block, keys, values);
    if (key < head.seen(first + rows - 1)) attend_block(head, block, b, keys, values, size);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const float sum = tutti::sum_lanes(b.sums + row * kLanes);
    unpack_row(b.out + row * width, size, 1 / sum, head.at(a.out, first + row));
    a.lse[head.lse_index(a.shape, first + row)] = b.highest[row] + log_scalar(sum);
  }
}

void attend_heads(const Attention& a, Part part, std::byte* bytes) {
  Workspace workspace(bytes);
  const AttentionBuffers buffers(a.shape, workspace);
  for (int64_t index = part.first; index < part.end; ++index) {
    const HeadRows head(a.shape, index);
    for (int64_t row = 0; row < head.count; row += kBlock) attend_rows(a, head, row, buffers);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

size_t attention_workspace_bytes(const AttentionShape& shape) {
  const int64_t width = padded(shape.head_size);
  const int64_t keys = (shape.keys + kBlock - 1) / kBlock * kBlock + kBlock;
  return static_cast<size_t>(2 * keys * width + 2 * kBlock * width + kBlock * kBlock +
                             kBlock * (1 + kLanes)) *
             sizeof(float) +
         64;
}

void attention(const Attention& given, int thread, int threads, std::byte* workspace) {
  const AttentionShape& shape = given.shape;
  TUTTI_ASSERT(shape.query_heads % shape.kv_heads == 0, "heads are shared by whole groups");
  TUTTI_ASSERT(!shape.causal || shape.queries <= shape.keys, "queries are the last places");
  TUTTI_SIMD(attend_heads)(given, part_of(shape.batch * shape.kv_heads, thread, threads),
                           workspace);
}

}  // namespace tutti
#endif
