// One set of kernels; normal_kernel.inc is compiled once for each kind of processor.
#pragma once

#include <cstdint>

namespace tutti {

// Blocks of Philox at a time: their bits and values lie in the first-level cache.
constexpr int kNormalBlocks = 64;
constexpr int kNormalsAtOnce = 4 * kNormalBlocks;

// P. J. Acklam's rational approximation between the tails, highest power first, with a relative
// error below 1.2e-9: a sixtieth of what an f32 rounds away.
constexpr double kNormalTail = 0.02425;
constexpr double kNormalAbove[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                                   -2.759285104469687e+02, 1.383577518672690e+02,
                                   -3.066479806614716e+01, 2.506628277459239e+00};
constexpr double kNormalBelow[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                                   -1.556989798598866e+02, 6.680131188771972e+01,
                                   -1.328068155288572e+01, 1};

struct NormalKernel {
  const char* name;
  // Of the blocks from `first` on: their bits, and values as if there were no tails.
  void (*make)(uint64_t key, uint64_t first, double scale, uint32_t* bits, float* values);
};

extern const NormalKernel kNormalSse2;
extern const NormalKernel kNormalAvx2;
extern const NormalKernel kNormalAvx512;

}  // namespace tutti
