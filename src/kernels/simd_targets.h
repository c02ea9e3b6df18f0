// Which instruction set the kernels written with Highway use: the best that the processor has,
// unless a test chose another.
//
// A file of kernels is compiled once for each target by hwy/foreach_target.h, after this header,
// and calls TUTTI_SIMD(function)(arguments…). Every target gives the same bits: lanes.inc.
#pragma once

#include <cstdint>
#include <span>

namespace tutti {

enum class SimdTarget : uint8_t { portable, avx2, avx512 };

SimdTarget simd_target();

// For tests: the targets this processor can run, by name, the slowest first, and choosing one.
std::span<const char* const> simd_targets();
void use_simd_target(const char* name);

template <class Function>
Function* simd_choice(Function* portable, Function* avx2, Function* avx512) {
  const SimdTarget target = simd_target();
  if (target == SimdTarget::avx512) return avx512;
  return target == SimdTarget::avx2 ? avx2 : portable;
}

}  // namespace tutti

#if defined(__x86_64__)
// Between them and AVX2 there is nothing that still has to be fast.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#define TUTTI_SIMD(function) \
  ::tutti::simd_choice(&HWY_STATIC_DISPATCH(function), &N_AVX2::function, &N_AVX3::function)
#else
#define TUTTI_SIMD(function) HWY_STATIC_DISPATCH(function)
#endif
