#include "kernels/fma_peak.h"

#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fma_peak.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A multiply-add takes four cycles or five, and two begin in each.
constexpr int kChains = 12;

// Chain i begins with i, and every round adds a quarter to it.
float fma_rounds(int64_t rounds) {
  const hn::ScalableTag<float> tag;
  const volatile float half = 0.5F;  // which the compiler does not know
  const auto factor = hn::Set(tag, half);
  hn::Vec<hn::ScalableTag<float>> sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(tag, static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = hn::MulAdd(factor, factor, sum);
  }
  auto all = hn::Zero(tag);
#pragma GCC unroll 12
  for (const auto& sum : sums) all = hn::Add(all, sum);
  return hn::GetLane(all);
}

int64_t fma_round_flops() {
  return int64_t{2} * kChains * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tutti {

int64_t fma_chain_flops() { return TUTTI_SIMD(fma_round_flops)(); }

float fma_chains(int64_t rounds) { return TUTTI_SIMD(fma_rounds)(rounds); }

}  // namespace tutti

#endif
