#include "kernels/reduce.h"

#include <cstring>

#include "kernels/row_groups.h"
#include "kernels/share.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce.cc"
#include <hwy/foreach_target.h>

#include "kernels/lanes.inc"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

template <bool kSquares>
HWY_INLINE float chunk_sum(const float* x, size_t count) {
  Sixteen sum = splat(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Sixteen in = load(x + i);
    sum = kSquares ? fused(in, in, sum) : add(sum, in);
  }
  if (i < count) {
    const Sixteen in = load_some(x + i, count - i);
    sum = kSquares ? fused(in, in, sum) : add(sum, in);
  }
  return sum_lanes(sum);
}

template <bool kSquares>
void chunk_sums(const float* x, int64_t elements, float* sums, Part part) {
  for (int64_t chunk = part.first; chunk < part.end; ++chunk) {
    const int64_t first = chunk * kReduceChunk;
    sums[chunk] = chunk_sum<kSquares>(x + first,
                                      static_cast<size_t>(HWY_MIN(elements - first, kReduceChunk)));
  }
}

void plain_chunks(const float* x, int64_t elements, float* sums, Part part) {
  chunk_sums<false>(x, elements, sums, part);
}
void square_chunks(const float* x, int64_t elements, float* sums, Part part) {
  chunk_sums<true>(x, elements, sums, part);
}

void sum_row_groups(const SumRows& s, Part part) {
  const auto columns = static_cast<size_t>(s.columns);
  for (int64_t group = part.first; group < part.end; ++group) {
    float* sums = s.group_sums + group * s.columns;
    std::memset(sums, 0, columns * sizeof(float));
    const int64_t end = HWY_MIN(s.rows, (group + 1) * kRowsPerGroup);
    for (int64_t row = group * kRowsPerGroup; row < end; ++row) {
      const float* x = s.x + row * s.row_stride;
      size_t i = 0;
      for (; i + kLanes <= columns; i += kLanes) store(add(load(sums + i), load(x + i)), sums + i);
      for (; i < columns; ++i) sums[i] += x[i];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

void sum_chunks(const float* x, int64_t elements, float* sums, int thread, int threads) {
  TUTTI_SIMD(plain_chunks)(x, elements, sums, part_of(reduce_chunks(elements), thread, threads));
}

void sum_square_chunks(const float* x, int64_t elements, float* sums, int thread, int threads) {
  TUTTI_SIMD(square_chunks)(x, elements, sums, part_of(reduce_chunks(elements), thread, threads));
}

float join_chunks(float* sums, int64_t chunks) {
  for (int64_t step = 1; step < chunks; step *= 2)
    for (int64_t i = 0; i + step < chunks; i += 2 * step) sums[i] += sums[i + step];
  return chunks > 0 ? sums[0] : 0;
}

void sum_rows(const SumRows& given, int thread, int threads) {
  TUTTI_SIMD(sum_row_groups)(given, part_of(row_groups(given.rows), thread, threads));
}

void sum_rows_join(const SumRows& given, int thread, int threads) {
  join_row_groups({.sums = given.group_sums,
                   .groups = row_groups(given.rows),
                   .row_stride = given.columns,
                   .columns = given.columns,
                   .total = given.out},
                  thread, threads);
}

}  // namespace tutti
#endif
