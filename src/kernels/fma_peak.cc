#include "kernels/fma_peak.h"

#include <cstddef>

namespace tutti {
namespace {

constexpr int kChains = 12;  // a multiply-add takes four cycles or five, and two begin in each

#if defined(__x86_64__)

using Eight = float __attribute__((vector_size(32)));
using Sixteen = float __attribute__((vector_size(64)));

// One chain's next value, as one instruction whatever the compiler's rules are.
__attribute__((always_inline)) inline void add_product(Eight& sum, const Eight& factor) {
  __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(sum) : "x"(factor));
}
__attribute__((always_inline)) inline void add_product(Sixteen& sum, const Sixteen& factor) {
  __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(sum) : "v"(factor));
}

template <class Vector>
__attribute__((always_inline)) inline float chains(int64_t rounds) {
  Vector sums[kChains] = {};
  const Vector factor = Vector{} + 0.5F;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) add_product(sum, factor);
  }
  Vector all = {};
#pragma GCC unroll 12
  for (const auto& sum : sums) all += sum;
  return all[0];
}

__attribute__((target("avx2,fma"))) float chains_of_8(int64_t rounds) {
  return chains<Eight>(rounds);
}
__attribute__((target("avx512f"))) float chains_of_16(int64_t rounds) {
  return chains<Sixteen>(rounds);
}

bool has_sixteen() { return __builtin_cpu_supports("avx512f"); }
bool has_eight() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

#else

float chains_of_8(int64_t) { return 0; }
float chains_of_16(int64_t) { return 0; }
bool has_sixteen() { return false; }
bool has_eight() { return false; }

#endif

// Without such instructions: a product and a sum.
float chains_of_1(int64_t rounds) {
  volatile float factor = 0.5F;
  float sums[kChains] = {};
  const float f = factor;
  for (int64_t round = 0; round < rounds; ++round)
    for (float& sum : sums) sum = sum * f + f;
  float all = 0;
  for (const float sum : sums) all += sum;
  return all;
}

}  // namespace

int64_t fma_chain_flops() {
  const int64_t lanes = has_sixteen() ? 16 : has_eight() ? 8 : 1;
  return 2 * kChains * lanes;
}

float fma_chains(int64_t rounds) {
  if (has_sixteen()) return chains_of_16(rounds);
  return has_eight() ? chains_of_8(rounds) : chains_of_1(rounds);
}

}  // namespace tutti
