#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/layer_norm.h"
#include "kernels/row_groups.h"
#include "kernels/scalar.h"

namespace tutti {
namespace {

// The mean of term(i, sum so far) over a row, in lanes.
template <class Term>
float mean_over(int64_t width, const Term& term) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < width; ++i) lanes[i % kLanes] = term(i, lanes[i % kLanes]);
  return sum_lanes(lanes) / static_cast<float>(width);
}

void norm(const LayerNorm& n, bool centred) {
  for (int64_t row = 0; row < n.rows; ++row) {
    const float* x = n.x + row * n.width;
    const float mean =
        centred ? mean_over(n.width, [&](int64_t i, float sum) { return sum + x[i]; }) : 0;
    const float variance = mean_over(
        n.width, [&](int64_t i, float sum) { return std::fma(x[i] - mean, x[i] - mean, sum); });
    const float inverse = 1 / std::sqrt(variance + n.epsilon);
    if (centred) n.mean[row] = mean;
    n.inverse[row] = inverse;
    for (int64_t i = 0; i < n.width; ++i) {
      const float normal = (x[i] - mean) * inverse;
      n.y[row * n.width + i] =
          centred ? std::fma(normal, n.scale[i], n.shift[i]) : normal * n.scale[i];
    }
  }
}

void norm_grad(const LayerNormGrad& n, bool centred) {
  const int64_t groups = row_groups(n.rows);
  std::fill_n(n.group_sums, groups * 2 * n.width, 0.0F);
  for (int64_t row = 0; row < n.rows; ++row) {
    const float* dy = n.dy + row * n.width;
    const float* x = n.x + row * n.width;
    float* dscale = n.group_sums + row / kRowsPerGroup * 2 * n.width;
    const float inverse = n.inverse[row];
    const float mean = centred ? n.mean[row] : 0;
    const auto normal = [&](int64_t i) { return (x[i] - mean) * inverse; };
    const auto g = [&](int64_t i) { return dy[i] * n.scale[i]; };
    const float mean_g =
        centred ? mean_over(n.width, [&](int64_t i, float sum) { return sum + g(i); }) : 0;
    const float mean_g_normal =
        mean_over(n.width, [&](int64_t i, float sum) { return std::fma(g(i), normal(i), sum); });
    for (int64_t i = 0; i < n.width; ++i) {
      dscale[i] = std::fma(dy[i], normal(i), dscale[i]);
      dscale[n.width + i] += dy[i];
      const float dx = inverse * std::fma(normal(i), -mean_g_normal, g(i) - mean_g);
      n.dx[row * n.width + i] = dx;
    }
  }
  RowGroupSums sums = {n.group_sums, groups, 2 * n.width, n.width, n.dscale};
  join_row_groups(sums, 0, 1);
  if (!centred) return;
  sums.sums += n.width;
  sums.total = n.dshift;
  join_row_groups(sums, 0, 1);
}

}  // namespace

void layer_norm_reference(const LayerNorm& n) { norm(n, true); }
void rms_norm_reference(const LayerNorm& n) { norm(n, false); }
void layer_norm_grad_reference(const LayerNormGrad& n) { norm_grad(n, true); }
void rms_norm_grad_reference(const LayerNormGrad& n) { norm_grad(n, false); }

}  // namespace tutti
