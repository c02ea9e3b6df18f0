#include <algorithm>
#include <limits>

#include "kernels/cross_entropy.h"
#include "kernels/scalar.h"

namespace tutti {

void cross_entropy_reference(const CrossEntropy& c) {
  for (int64_t row = 0; row < c.rows; ++row) {
    float* x = c.logits + row * c.row_stride;
    const int32_t target = c.targets[row];
    const bool counts = target >= 0 && target < c.vocab;
    float highest = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < c.vocab; ++i) highest = x[i] > highest ? x[i] : highest;
    float lanes[kLanes] = {};
    for (int64_t i = 0; i < c.vocab; ++i) lanes[i % kLanes] += exp_scalar(x[i] - highest);
    const float total = sum_lanes(lanes);
    c.loss[row] = counts ? log_scalar(total) + (highest - x[target]) : 0;
    if (c.dloss == nullptr) continue;
    const float factor = counts ? c.dloss[row] / total : 0;
    for (int64_t i = 0; i < c.vocab; ++i) {
      const float e = exp_scalar(x[i] - highest);
      x[i] = !counts ? 0 : i == target ? (e / total - 1) * c.dloss[row] : e * factor;
    }
  }
}

}  // namespace tutti
