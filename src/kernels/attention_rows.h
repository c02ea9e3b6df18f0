// What attention's kernels share: one head of keys and values as a matrix product's rows.
//
// The queries of all heads that share the keys are the rows, by time and then by head, so that
// rows of a tile see nearly the same keys, and one query of several heads fills a tile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/scalar.h"

namespace tutti {

// Multiples of every target's tile (6 or 12 rows, 16 columns); three blocks of keys of 64 numbers
// each are what a first-level cache of 32 KiB still holds one of.
constexpr int64_t kBlock = 96;

constexpr int64_t kMostTileRows = 12;

// Rows of packed matrices are whole vectors.
inline int64_t padded(int64_t count, int64_t unit = kLanes) {
  return (count + unit - 1) / unit * unit;
}

struct HeadRows {
  int64_t batch;
  int64_t kv_head;
  int64_t group;  // query heads that share it
  int64_t count;  // rows
  int64_t keys;
  int64_t unseen;  // keys that row 0 does not see behind its own place
  bool causal;

  explicit HeadRows(const Attention& given, int64_t index) : HeadRows(given.shape, index) {
    if (given.positions == nullptr) return;
    unseen = given.positions[batch * given.position_stride];
    keys = std::min(keys, unseen + given.shape.queries);
  }
  HeadRows(const AttentionShape& shape, int64_t index)
      : batch(index / shape.kv_heads),
        kv_head(index % shape.kv_heads),
        group(shape.query_heads / shape.kv_heads),
        count(shape.queries * group),
        keys(shape.keys),
        unseen(shape.keys - shape.queries),
        causal(shape.causal) {}

  int64_t time(int64_t row) const { return group == 1 ? row : row / group; }
  int64_t head(int64_t row) const { return group == 1 ? kv_head : kv_head * group + row % group; }
  // How many keys a row sees.
  int64_t seen(int64_t row) const { return causal ? std::min(keys, unseen + time(row) + 1) : keys; }
  // Of those from `first_key` on, at most `most`.
  int64_t seen(int64_t row, int64_t first_key, int64_t most) const {
    return std::clamp<int64_t>(seen(row) - first_key, 0, most);
  }
  // The first row that sees a key.
  int64_t first_seeing(int64_t key) const {
    return causal ? std::clamp<int64_t>((key - unseen) * group, 0, count) : 0;
  }
  template <class T>
  T* at(const HeadsOf<T>& heads, int64_t row) const {
    return heads.at(batch, head(row), time(row));
  }
  int64_t lse_index(const AttentionShape& shape, int64_t row) const {
    return (batch * shape.query_heads + head(row)) * shape.queries + time(row);
  }
};

// A block of rows by a block of keys, and how many of the keys each tile of rows needs:
// what its last row sees.
template <int64_t kTileRows>
struct HeadBlock {
  int64_t first_row;
  int64_t rows;
  int64_t first_key;
  int64_t keys;
  int64_t depths[kBlock / kTileRows];

  HeadBlock(const HeadRows& head, int64_t first_row, int64_t first_key)
      : first_row(first_row),
        rows(std::min(head.count - first_row, kBlock)),
        first_key(first_key),
        keys(std::min(head.keys - first_key, kBlock)) {
    for (int64_t row = 0; row < rows; row += kTileRows)
      depths[row / kTileRows] =
          head.seen(first_row + std::min(row + kTileRows, rows) - 1, first_key, keys);
  }
  int64_t depth(int64_t row) const { return depths[row / kTileRows]; }
};

// Deals a workspace out, in whole cache lines; without one, finds out how large it has to be.
class Workspace {
 public:
  explicit Workspace(std::byte* bytes) : first_(bytes) {
    if (bytes != nullptr) first_ += -reinterpret_cast<uintptr_t>(bytes) % kLine;
  }
  float* floats(int64_t count) {
    const size_t at = used_;
    used_ += static_cast<size_t>(padded(count)) * sizeof(float);
    return first_ == nullptr ? nullptr : reinterpret_cast<float*>(first_ + at);
  }
  size_t bytes() const { return used_ + kLine; }

 private:
  static constexpr size_t kLine = kLanes * sizeof(float);

  std::byte* first_;
  size_t used_ = 0;
};

}  // namespace tutti
