// The matrix product with vectors, compiled once for each kind of processor by Highway. We ask the
// processor ourselves: Debian has Highway's own dispatch as a shared library only.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Its tiles take minutes to instrument; those of AVX2 are the same code.
#define TUTTI_GEMM_AVX512 0
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define TUTTI_GEMM_AVX512 1
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)  // no FMA, and no gain
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_targets.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/gemm_kernel.h"

#if HWY_NATIVE_FMA
#include "kernels/gemm_tile.inc"
// The tile first, then what feeds it.
#include "kernels/gemm_pack.inc"
// Without packing, for few rows.
#include "kernels/gemm_thin.inc"
// Packed blocks, then the loops over them.
#include "kernels/gemm_loops.inc"
// Pieces that threads take in turns.
#include "kernels/gemm_shared.inc"
// What the others call.
#include "kernels/gemm_run.inc"
#endif

#if HWY_ONCE

namespace tutti {

std::span<const GemmKernel* const> gemm_vector_kernels() {
  static const auto runnable = [] {
    std::vector<const GemmKernel*> found;
#if HWY_NATIVE_FMA
    found.push_back(&HWY_NAMESPACE::kGemm);
#elif HWY_ARCH_X86
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    if (avx2) found.push_back(&N_AVX2::kGemm);
#if TUTTI_GEMM_AVX512
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
      found.push_back(&N_AVX3::kGemm);
#endif
#endif
    return found;
  }();
  return runnable;
}

}  // namespace tutti

#endif
