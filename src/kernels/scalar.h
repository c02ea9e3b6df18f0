// The elementary functions of the kernels, one number at a time: what lanes.inc computes for
// sixteen, operation by operation, so that a reference has the same bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tutti {

constexpr int kLanes = 16;

// Cephes' polynomial, with fused multiply-adds; relative error below 1.2e-7. Zero below -87, where
// results would soon be subnormal; not for numbers above 88.
namespace exp_constants {
constexpr float kLeast = -87.0F;
constexpr float kLog2E = 1.44269504088896341F;
constexpr float kRound = 12582912.0F;  // 1.5 × 2^23: adding it leaves the integer in the low bits
constexpr float kLn2High = 0.693359375F;
constexpr float kLn2Low = -2.12194440e-4F;
constexpr float kPolynomial[] = {1.9875691500e-4F, 1.3981999507e-3F, 8.3334519073e-3F,
                                 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F};
}  // namespace exp_constants

inline float exp_scalar(float x) {
  using namespace exp_constants;
  if (x < kLeast) return 0;
  const float shifted = std::fma(x, kLog2E, kRound);
  const float n = shifted - kRound;
  const float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  float y = kPolynomial[0];
  for (int i = 1; i < 6; ++i) y = std::fma(y, r, kPolynomial[i]);
  y = std::fma(y, r * r, r) + 1.0F;
  return y * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127) << 23);
}

// The natural logarithm of a positive number; NaN of others. In double precision, and without the C
// library's, which is another on another processor.
inline float log_scalar(float x) {
  if (!(x > 0) || x == INFINITY) return x == INFINITY ? x : NAN;
  constexpr uint64_t kHalf = 0x3fe0000000000000;
  constexpr uint64_t kFraction = 0x000fffffffffffff;
  const auto bits = std::bit_cast<uint64_t>(static_cast<double>(x));
  auto power = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1022);
  auto m = std::bit_cast<double>((bits & kFraction) | kHalf);
  if (m < 0.70710678118654752) {
    m *= 2;
    power -= 1;
  }
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  static constexpr double kOdd[] = {1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0};
  double series = 1.0 / 15;
  for (const double each : kOdd) series = series * z + each;
  return static_cast<float>(2 * s * series + power * 0.69314718055994531);
}

// The one order in which sixteen lanes become one number.
inline float sum_lanes(const float* lanes) {
  float b[4];
  for (int i = 0; i < 4; ++i) b[i] = (lanes[i] + lanes[i + 8]) + (lanes[i + 4] + lanes[i + 12]);
  return (b[0] + b[2]) + (b[1] + b[3]);
}

}  // namespace tutti
