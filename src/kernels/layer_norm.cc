#include "kernels/layer_norm.h"

#include <cstring>

#include "kernels/row_groups.h"
#include "kernels/share.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm.cc"
#include <hwy/foreach_target.h>

#include "kernels/lanes.inc"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

HWY_INLINE Sixteen load_upto(const float* from, size_t count) {
  return count == kLanes ? load(from) : load_some(from, count);
}
HWY_INLINE void store_upto(const Sixteen& x, float* to, size_t count) {
  if (count == kLanes)
    store(x, to);
  else
    store_some(x, to, count);
}

HWY_INLINE float row_mean(const float* x, size_t width) {
  Sixteen sum = splat(0);
  size_t i = 0;
  for (; i + kLanes <= width; i += kLanes) sum = add(sum, load(x + i));
  if (i < width) sum = add(sum, load_some(x + i, width - i));
  return sum_lanes(sum) / static_cast<float>(width);
}

// Of the squares of differences to `mean`.
HWY_INLINE float row_variance(const float* x, size_t width, float mean) {
  const Sixteen middle = splat(mean);
  Sixteen sum = splat(0);
  size_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Sixteen off = sub(load(x + i), middle);
    sum = fused(off, off, sum);
  }
  if (i < width) {
    const Sixteen off = sub(load_some(x + i, width - i), middle);
    sum = first_of(width - i, fused(off, off, sum), sum);
  }
  return sum_lanes(sum) / static_cast<float>(width);
}

template <bool kCentred>
void norm_rows(const LayerNorm& n, int64_t first, int64_t end) {
  const auto width = static_cast<size_t>(n.width);
  for (int64_t row = first; row < end; ++row) {
    const float* x = n.x + row * n.width;
    float* y = n.y + row * n.width;
    const float mean = kCentred ? row_mean(x, width) : 0;
    const float inverse = 1 / std::sqrt(row_variance(x, width, mean) + n.epsilon);
    if (kCentred) n.mean[row] = mean;
    n.inverse[row] = inverse;
    const Sixteen middle = splat(mean);
    const Sixteen factor = splat(inverse);
    for (size_t i = 0; i < width; i += kLanes) {
      const size_t count = HWY_MIN(width - i, static_cast<size_t>(kLanes));
      const Sixteen in = load_upto(x + i, count);
      const Sixteen normal = mul(kCentred ? sub(in, middle) : in, factor);
      const Sixteen scale = load_upto(n.scale + i, count);
      store_upto(
          kCentred ? fused(normal, scale, load_upto(n.shift + i, count)) : mul(normal, scale),
          y + i, count);
    }
  }
}

// The factors of one row: of the gradient of the norm itself.
struct RowGrad {
  float mean;
  float inverse;
  float mean_g;         // of g = dy · scale
  float mean_g_normal;  // of g · normal
};

// Adds to the sums of the row's group on the way.
template <bool kCentred>
HWY_INLINE void sum_row(const LayerNormGrad& n, const float* dy, const float* x, float* dscale,
                        float* dshift, RowGrad& row) {
  const auto width = static_cast<size_t>(n.width);
  const Sixteen middle = splat(row.mean);
  const Sixteen factor = splat(row.inverse);
  Sixteen g_sum = splat(0);
  Sixteen g_normal_sum = splat(0);
  for (size_t i = 0; i < width; i += kLanes) {
    const size_t count = HWY_MIN(width - i, static_cast<size_t>(kLanes));
    const Sixteen in = load_upto(x + i, count);
    const Sixteen grad = load_upto(dy + i, count);
    const Sixteen normal = mul(kCentred ? sub(in, middle) : in, factor);
    const Sixteen g = mul(grad, load_upto(n.scale + i, count));
    if (kCentred) g_sum = add(g_sum, g);
    g_normal_sum = fused(g, normal, g_normal_sum);
    store_upto(fused(grad, normal, load_upto(dscale + i, count)), dscale + i, count);
    if (kCentred) store_upto(add(load_upto(dshift + i, count), grad), dshift + i, count);
  }
  row.mean_g = kCentred ? sum_lanes(g_sum) / static_cast<float>(width) : 0;
  row.mean_g_normal = sum_lanes(g_normal_sum) / static_cast<float>(width);
}

template <bool kCentred>
HWY_INLINE void write_dx(const LayerNormGrad& n, const float* dy, const float* x, float* dx,
                         const RowGrad& row) {
  const auto width = static_cast<size_t>(n.width);
  const Sixteen middle = splat(row.mean);
  const Sixteen factor = splat(row.inverse);
  const Sixteen mean_g = splat(row.mean_g);
  const Sixteen less = splat(-row.mean_g_normal);
  for (size_t i = 0; i < width; i += kLanes) {
    const size_t count = HWY_MIN(width - i, static_cast<size_t>(kLanes));
    const Sixteen in = load_upto(x + i, count);
    const Sixteen normal = mul(kCentred ? sub(in, middle) : in, factor);
    const Sixteen g = mul(load_upto(dy + i, count), load_upto(n.scale + i, count));
    const Sixteen centred = kCentred ? sub(g, mean_g) : g;
    store_upto(mul(factor, fused(normal, less, centred)), dx + i, count);
  }
}

template <bool kCentred>
void grad_groups(const LayerNormGrad& n, int64_t first_group, int64_t end_group) {
  const int64_t columns = n.width * (kCentred ? 2 : 1);
  for (int64_t group = first_group; group < end_group; ++group) {
    float* dscale = n.group_sums + group * columns;
    float* dshift = dscale + n.width;
    std::memset(dscale, 0, static_cast<size_t>(columns) * sizeof(float));
    const int64_t end = HWY_MIN(n.rows, (group + 1) * kRowsPerGroup);
    for (int64_t row = group * kRowsPerGroup; row < end; ++row) {
      const float* dy = n.dy + row * n.width;
      const float* x = n.x + row * n.width;
      RowGrad sums = {kCentred ? n.mean[row] : 0, n.inverse[row], 0, 0};
      sum_row<kCentred>(n, dy, x, dscale, dshift, sums);
      write_dx<kCentred>(n, dy, x, n.dx + row * n.width, sums);
    }
  }
}

void layer_norm_rows(const LayerNorm& n, Part part) { norm_rows<true>(n, part.first, part.end); }
void rms_norm_rows(const LayerNorm& n, Part part) { norm_rows<false>(n, part.first, part.end); }
void layer_norm_groups(const LayerNormGrad& n, Part part) {
  grad_groups<true>(n, part.first, part.end);
}
void rms_norm_groups(const LayerNormGrad& n, Part part) {
  grad_groups<false>(n, part.first, part.end);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

void layer_norm(const LayerNorm& norm, int thread, int threads) {
  TUTTI_SIMD(layer_norm_rows)(norm, part_of(norm.rows, thread, threads));
}

void rms_norm(const LayerNorm& norm, int thread, int threads) {
  TUTTI_SIMD(rms_norm_rows)(norm, part_of(norm.rows, thread, threads));
}

size_t layer_norm_grad_floats(int64_t rows, int64_t width) {
  return static_cast<size_t>(row_groups(rows) * 2 * width);
}

void layer_norm_grad_rows(const LayerNormGrad& grad, int thread, int threads) {
  TUTTI_SIMD(layer_norm_groups)(grad, part_of(row_groups(grad.rows), thread, threads));
}

void rms_norm_grad_rows(const LayerNormGrad& grad, int thread, int threads) {
  TUTTI_SIMD(rms_norm_groups)(grad, part_of(row_groups(grad.rows), thread, threads));
}

void layer_norm_grad_join(const LayerNormGrad& grad, int thread, int threads) {
  RowGroupSums sums = {.sums = grad.group_sums,
                       .groups = row_groups(grad.rows),
                       .row_stride = 2 * grad.width,
                       .columns = grad.width,
                       .total = grad.dscale};
  join_row_groups(sums, thread, threads);
  sums.sums += grad.width;
  sums.total = grad.dshift;
  join_row_groups(sums, thread, threads);
}

void rms_norm_grad_join(const LayerNormGrad& grad, int thread, int threads) {
  join_row_groups({.sums = grad.group_sums,
                   .groups = row_groups(grad.rows),
                   .row_stride = grad.width,
                   .columns = grad.width,
                   .total = grad.dscale},
                  thread, threads);
}

}  // namespace tutti
#endif
