#include "kernels/cross_entropy.h"

#include <cstring>

#include "kernels/share.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy.cc"
#include <hwy/foreach_target.h>

#include "kernels/lanes.inc"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

HWY_INLINE float row_max(const float* x, size_t count) {
  const Sixteen least = splat(-std::numeric_limits<float>::infinity());
  Sixteen most = least;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) most = max(load(x + i), most);
  if (i < count) most = max(first_of(count - i, load_some(x + i, count - i), least), most);
  return max_lanes(most);
}

// The sum of exp(x - highest); the terms take the place of x when kKeep.
template <bool kKeep>
HWY_INLINE float sum_of_exp(float* x, size_t count, float highest) {
  const Sixteen top = splat(highest);
  Sixteen sum = splat(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Sixteen e = exp(sub(load(x + i), top));
    sum = add(sum, e);
    if (kKeep) store(e, x + i);
  }
  if (i < count) {
    const Sixteen e = exp(sub(load_some(x + i, count - i), top));
    sum = first_of(count - i, add(sum, e), sum);
    if (kKeep) store_some(e, x + i, count - i);
  }
  return sum_lanes(sum);
}

HWY_INLINE void scale_row(float* x, size_t count, float factor) {
  const Sixteen by = splat(factor);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(mul(load(x + i), by), x + i);
  for (; i < count; ++i) x[i] *= factor;
}

void cross_entropy_rows(const CrossEntropy& c, Part part) {
  const auto vocab = static_cast<size_t>(c.vocab);
  for (int64_t row = part.first; row < part.end; ++row) {
    float* x = c.logits + row * c.row_stride;
    const int32_t target = c.targets[row];
    if (target < 0 || target >= c.vocab) {
      c.loss[row] = 0;
      if (c.dloss != nullptr) std::memset(x, 0, vocab * sizeof(float));
      continue;
    }
    const float picked = x[target];
    const float highest = row_max(x, vocab);
    const float total = c.dloss != nullptr ? sum_of_exp<true>(x, vocab, highest)
                                           : sum_of_exp<false>(x, vocab, highest);
    c.loss[row] = log_scalar(total) + (highest - picked);
    if (c.dloss == nullptr) continue;
    const float at_target = (x[target] / total - 1) * c.dloss[row];
    scale_row(x, vocab, c.dloss[row] / total);
    x[target] = at_target;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

std::optional<int64_t> cross_entropy(const CrossEntropy& given, int thread, int threads) {
  const Part part = part_of(given.rows, thread, threads);
  TUTTI_SIMD(cross_entropy_rows)(given, part);
  for (int64_t row = part.first; row < part.end; ++row)
    if (given.targets[row] >= given.vocab) return row;
  return std::nullopt;
}

}  // namespace tutti
#endif
