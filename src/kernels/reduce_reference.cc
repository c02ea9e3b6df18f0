#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/reduce.h"
#include "kernels/row_groups.h"
#include "kernels/scalar.h"

namespace tutti {
namespace {

// The node of the tree over leaves [first, first + count): its left half is the largest whole one.
template <class Leaf>
float tree_sum(int64_t first, int64_t count, const Leaf& leaf) {
  if (count == 0) return 0;
  if (count == 1) return leaf(first);
  const auto half = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)) / 2);
  return tree_sum(first, half, leaf) + tree_sum(first + half, count - half, leaf);
}

template <class Term>
float sum_in_chunks(int64_t elements, const Term& term) {
  return tree_sum(0, reduce_chunks(elements), [&](int64_t chunk) {
    float lanes[kLanes] = {};
    const int64_t end = std::min(elements, (chunk + 1) * kReduceChunk);
    for (int64_t i = chunk * kReduceChunk; i < end; ++i)
      lanes[i % kLanes] = term(i, lanes[i % kLanes]);
    return sum_lanes(lanes);
  });
}

}  // namespace

float sum_reference(const float* x, int64_t elements) {
  return sum_in_chunks(elements, [x](int64_t i, float sum) { return sum + x[i]; });
}

float sum_squares_reference(const float* x, int64_t elements) {
  return sum_in_chunks(elements, [x](int64_t i, float sum) { return std::fma(x[i], x[i], sum); });
}

void sum_rows_reference(const SumRows& given) {
  for (int64_t column = 0; column < given.columns; ++column)
    given.out[column] = tree_sum(0, row_groups(given.rows), [&](int64_t group) {
      float sum = 0;
      const int64_t end = std::min(given.rows, (group + 1) * kRowsPerGroup);
      for (int64_t row = group * kRowsPerGroup; row < end; ++row)
        sum += given.x[row * given.row_stride + column];
      return sum;
    });
}

}  // namespace tutti
