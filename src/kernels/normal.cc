#include "kernels/normal.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "kernels/normal_kernel.h"

namespace tutti {
namespace {

constexpr double kLogOfTwo = 0.693147180559945309417232;
// Bits below this, or their complement, are of the tails.
constexpr auto kTailBits = static_cast<uint32_t>(kNormalTail * 0x1p32 - 0.5);

double polynomial(double x, std::span<const double> coefficients) {
  double sum = 0;
  for (const double coefficient : coefficients) sum = sum * x + coefficient;
  return sum;
}

// Of 0 < x: the exponent and a series in (m-1)/(m+1), whose terms end below the last bit.
double natural_log(double x) {
  static constexpr double kSeries[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                       1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xfffffffffffff) | 0x3ff0000000000000);
  if (mantissa > 1.41421356) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  return static_cast<double>(exponent) * kLogOfTwo + 2 * s * polynomial(s * s, kSeries);
}

// Ascending: the last is the fastest.
std::span<const NormalKernel* const> kernels() {
  static const auto runnable = [] {
    std::vector<const NormalKernel*> found{&kNormalSse2};
    if (__builtin_cpu_supports("avx2")) found.push_back(&kNormalAvx2);
    if (__builtin_cpu_supports("avx512f")) found.push_back(&kNormalAvx512);
    return found;
  }();
  return runnable;
}

std::atomic<const NormalKernel*> chosen = nullptr;

}  // namespace

// P. J. Acklam's rational approximations, as those of normal_kernel.h.
double normal_quantile(double probability) {
  static constexpr double kC[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                                  -2.400758277161838e+00, -2.549732539343734e+00,
                                  4.374664141464968e+00,  2.938163982698783e+00};
  static constexpr double kD[] = {7.784695709041462e-03, 3.224671290700398e-01,
                                  2.445134137142996e+00, 3.754408661907416e+00, 1};
  if (probability > 0.5) return -normal_quantile(1 - probability);
  if (probability < kNormalTail) {
    const double q = std::sqrt(-2 * natural_log(probability));
    return polynomial(q, kC) / polynomial(q, kD);
  }
  const double q = probability - 0.5;
  const double square = q * q;
  return q * polynomial(square, kNormalAbove) / polynomial(square, kNormalBelow);
}

void normal_values(uint64_t key, uint64_t first, double scale, std::span<float> values) {
  const NormalKernel* now = chosen.load(std::memory_order_relaxed);
  if (now == nullptr) now = kernels().back();
  uint32_t bits[kNormalsAtOnce];
  float made[kNormalsAtOnce];
  size_t skipped = first % 4;  // of the first block
  for (size_t done = 0; done < values.size();) {
    now->make(key, (first + done) / 4, scale, bits, made);
    const size_t count = std::min(kNormalsAtOnce - skipped, values.size() - done);
    for (size_t i = skipped; i < skipped + count; ++i) {
      if (std::min(bits[i], ~bits[i]) <= kTailBits)
        made[i] = static_cast<float>(scale * normal_quantile((bits[i] + 0.5) * 0x1p-32));
    }
    std::copy_n(made + skipped, count, values.data() + done);
    done += count;
    skipped = 0;
  }
}

std::span<const char* const> normal_kernels() {
  static const auto names = [] {
    std::vector<const char*> all;
    for (const NormalKernel* each : kernels()) all.push_back(each->name);
    return all;
  }();
  return names;
}

void use_normal_kernel(const char* name) {
  for (const NormalKernel* each : kernels())
    if (std::strcmp(each->name, name) == 0) return chosen.store(each);
  TUTTI_ASSERT(false, "only kernels of normal_kernels() can be used");
}

}  // namespace tutti
