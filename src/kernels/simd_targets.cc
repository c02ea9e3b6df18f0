#include "kernels/simd_targets.h"

#include <atomic>
#include <cstring>

#include "base/assert.h"

namespace tutti {

namespace {

constexpr const char* kNames[] = {"portable", "avx2", "avx512"};

// What Highway takes for granted in its AVX2 and AVX3 targets.
SimdTarget best_target() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (avx2) return avx512 ? SimdTarget::avx512 : SimdTarget::avx2;
#endif
  return SimdTarget::portable;
}

std::atomic<SimdTarget> chosen = best_target();

}  // namespace

SimdTarget simd_target() { return chosen.load(std::memory_order_relaxed); }

std::span<const char* const> simd_targets() {
  return std::span(kNames).first(static_cast<size_t>(best_target()) + 1);
}

void use_simd_target(const char* name) {
  for (size_t i = 0; i < simd_targets().size(); ++i)
    if (std::strcmp(kNames[i], name) == 0) return chosen.store(static_cast<SimdTarget>(i));
  TUTTI_ASSERT(false, "only targets of simd_targets() can be used");
}

}  // namespace tutti
