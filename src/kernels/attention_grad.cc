#include <cstring>

#include "base/assert.h"
#include "kernels/attention.h"
#include "kernels/attention_rows.h"
#include "kernels/share.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_grad.cc"
#include <hwy/foreach_target.h>

#include "kernels/attention_tile.inc"
#include "kernels/lanes.inc"

#ifndef TUTTI_KERNELS_ATTENTION_GRAD_BUFFERS
#define TUTTI_KERNELS_ATTENTION_GRAD_BUFFERS
namespace tutti {

// The workspace of one thread: a head's rows, and a block of its keys at a time.
struct AttentionGradBuffers {
  float* q;       // [rows][width], times the scale
  float* dout;    // [rows][width]
  float* dq;      // [rows][width], without the scale
  float* dots;    // [rows]: dout · out
  float* lse;     // [rows]
  float* keys;    // [kBlock][width]
  float* keys_t;  // [panel][head size][16]
  float* values_t;
  float* dk;  // [kBlock][width]
  float* dv;
  float* p;   // [kBlock][kBlock]: scores, then probabilities
  float* ds;  // [kBlock][kBlock]: gradients of probabilities, then of scores

  AttentionGradBuffers(const AttentionShape& shape, Workspace& workspace) {
    const int64_t width = padded(shape.head_size);
    const int64_t rows = shape.queries * (shape.query_heads / shape.kv_heads) + kMostTileRows;
    q = workspace.floats(rows * width);
    dout = workspace.floats(rows * width);
    dq = workspace.floats(rows * width);
    dots = workspace.floats(rows);
    lse = workspace.floats(rows);
    keys = workspace.floats(kBlock * width);
    keys_t = workspace.floats(kBlock * width);
    values_t = workspace.floats(kBlock * width);
    dk = workspace.floats(kBlock * width);
    dv = workspace.floats(kBlock * width);
    p = workspace.floats(kBlock * kBlock);
    ds = workspace.floats(kBlock * kBlock);
  }
};

}  // namespace tutti
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

void pack_head(const AttentionGrad& a, const HeadRows& head, const AttentionGradBuffers& b) {
  const int64_t size = a.shape.head_size;
  const int64_t width = padded(size);
  for (int64_t row = 0; row < head.count; ++row) {
    const float* out = head.at(a.out, row);
    float* dout = b.dout + row * width;
    if (row + kRowsAhead < head.count) {
      prefetch_row(head.at(a.q, row + kRowsAhead), size);
      prefetch_row(head.at(a.dout, row + kRowsAhead), size);
      prefetch_row(head.at(a.out, row + kRowsAhead), size);
    }
    pack_row(head.at(a.q, row), size, a.shape.scale, b.q + row * width);
    pack_row(head.at(a.dout, row), size, 1, dout);
    Sixteen dot = splat(0);
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) dot = fused(load(dout + i), load(out + i), dot);
    if (i < size)
      dot = fused(load(dout + i), load_some(out + i, static_cast<size_t>(size - i)), dot);
    b.dots[row] = sum_lanes(dot);
    b.lse[row] = a.lse[head.lse_index(a.shape, row)];
  }
  const auto spare = static_cast<size_t>(kMostTileRows * width) * sizeof(float);
  std::memset(b.q + head.count * width, 0, spare);
  std::memset(b.dout + head.count * width, 0, spare);
  std::memset(b.dq, 0, static_cast<size_t>(head.count + kMostTileRows) * width * sizeof(float));
}

// Scores and gradients of probabilities become probabilities and gradients of scores, and zero for
// keys the row does not see, as far as any tile reads.
void grad_row(float* p, float* ds, float lse, float dot, int64_t seen) {
  const Sixteen log_sum = splat(lse);
  const Sixteen less = splat(dot);
  int64_t i = 0;
  for (; i < seen; i += kLanes) {
    Sixteen e = exp(sub(load(p + i), log_sum));
    Sixteen g = mul(e, sub(load(ds + i), less));
    if (i + kLanes > seen) {
      e = first_of(static_cast<size_t>(seen - i), e, splat(0));
      g = first_of(static_cast<size_t>(seen - i), g, splat(0));
    }
    store(e, p + i);
    store(g, ds + i);
  }
  const int64_t end = HWY_MIN(i + kLanes, kBlock);
  for (; i < end; i += kLanes) {
    store(splat(0), p + i);
    store(splat(0), ds + i);
  }
}

void scores_of_block(const HeadRows& head, const AttentionBlock& block,
                     const AttentionGradBuffers& b, int64_t size) {
  const int64_t width = padded(size);
  const float* q = b.q + block.first_row * width;
  const float* dout = b.dout + block.first_row * width;
  const auto product = [&](const float* rows, const float* panels, float* to) HWY_ATTR {
    for (int64_t panel = 0; panel < block.keys; panel += kLanes)
      for (int64_t row = 0; row < block.rows; row += kAttentionTileRows) {
        if (panel >= block.depth(row)) continue;
        attention_tile<false, false>(size, {rows + row * width, width},
                                     {panels + panel * size, kLanes}, to + row * kBlock + panel,
                                     kBlock);
      }
  };
  product(q, b.keys_t, b.p);
  product(dout, b.values_t, b.ds);
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t global = block.first_row + row;
    grad_row(b.p + row * kBlock, b.ds + row * kBlock, b.lse[global], b.dots[global],
             head.seen(global, block.first_key, block.keys));
  }
}

// What a block adds to the gradients, column by column of heads.
void add_block(const HeadRows& head, const AttentionBlock& block, const AttentionGradBuffers& b,
               int64_t width) {
  const auto to_keys = [&](const float* weights, const float* rows, float* to) HWY_ATTR {
    for (int64_t column = 0; column < width; column += kLanes)
      for (int64_t key = 0; key < block.keys; key += kAttentionTileRows) {
        const int64_t from =
            HWY_MAX(head.first_seeing(block.first_key + key), block.first_row) - block.first_row;
        if (from < block.rows)
          attention_tile<true, true>(block.rows - from, {weights + from * kBlock + key, kBlock},
                                     {rows + (block.first_row + from) * width + column, width},
                                     to + key * width + column, width);
      }
  };
  to_keys(b.p, b.dout, b.dv);
  to_keys(b.ds, b.q, b.dk);
  for (int64_t column = 0; column < width; column += kLanes)
    for (int64_t row = 0; row < block.rows; row += kAttentionTileRows)
      attention_tile<false, true>(block.depth(row), {b.ds + row * kBlock, kBlock},
                                  {b.keys + column, width},
                                  b.dq + (block.first_row + row) * width + column, width);
}

void grad_keys(const AttentionGrad& a, const HeadRows& head, int64_t first,
               const AttentionGradBuffers& b) {
  const int64_t size = a.shape.head_size;
  const int64_t width = padded(size);
  const int64_t keys = HWY_MIN(head.keys - first, kBlock);
  const float* k = a.k.at(head.batch, head.kv_head, first);
  pack_transposed(k, a.k.time_stride, keys, size, b.keys_t);
  pack_transposed(a.v.at(head.batch, head.kv_head, first), a.v.time_stride, keys, size, b.values_t);
  for (int64_t key = 0; key < keys; ++key)
    pack_row(k + key * a.k.time_stride, size, 1, b.keys + key * width);
  std::memset(b.dk, 0, static_cast<size_t>(kBlock * width) * sizeof(float));
  std::memset(b.dv, 0, static_cast<size_t>(kBlock * width) * sizeof(float));
  for (int64_t row = head.first_seeing(first); row < head.count; row += kBlock) {
    const AttentionBlock block(head, row, first);
    scores_of_block(head, block, b, size);
    add_block(head, block, b, width);
  }
  for (int64_t key = 0; key < keys; ++key) {
    float* dk = a.dk.at(head.batch, head.kv_head, first + key);
    float* dv = a.dv.at(head.batch, head.kv_head, first + key);
    if (key + kRowsAhead < keys) {
      prefetch_row(dk + kRowsAhead * a.dk.time_stride, size);
      prefetch_row(dv + kRowsAhead * a.dv.time_stride, size);
    }
    unpack_row(b.dk + key * width, size, 1, dk);
    unpack_row(b.dv + key * width, size, 1, dv);
  }
}

void grad_heads(const AttentionGrad& a, Turns& turns, std::byte* bytes) {
  Workspace workspace(bytes);
  const AttentionGradBuffers buffers(a.shape, workspace);
  const int64_t size = a.shape.head_size;
  const int64_t width = padded(size);
  const int64_t heads = a.shape.batch * a.shape.kv_heads;
  for (int64_t index = turns.take(); index < heads; index = turns.take()) {
    const HeadRows head(a.shape, index);
    pack_head(a, head, buffers);
    for (int64_t key = 0; key < head.keys; key += kBlock) grad_keys(a, head, key, buffers);
    for (int64_t row = 0; row < head.count; ++row) {
      if (row + kRowsAhead < head.count) prefetch_row(head.at(a.dq, row + kRowsAhead), size);
      unpack_row(buffers.dq + row * width, size, a.shape.scale, head.at(a.dq, row));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

size_t attention_grad_workspace_bytes(const AttentionShape& shape) {
  Workspace workspace(nullptr);
  const AttentionGradBuffers buffers(shape, workspace);
  return workspace.bytes();
}

void attention_grad(const AttentionGrad& given, Turns& turns, std::byte* workspace) {
  const AttentionShape& shape = given.shape;
  TUTTI_ASSERT(shape.query_heads % shape.kv_heads == 0, "heads are shared by whole groups");
  TUTTI_ASSERT(!shape.causal || shape.queries <= shape.keys, "queries are the last places");
  TUTTI_SIMD(grad_heads)(given, turns, workspace);
}

}  // namespace tutti
#endif
