// As much of Highway as kernels use, with vectors of sixteen floats that any processor has: to test
// what AVX-512 would do where there is none. Slow and plain.
//
// Included after hwy/highway.h; what is included next is compiled for these vectors.
#pragma once

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hwy::N_EMULATED {

template <class T, size_t kCount>
struct Tag {
  using Number = T;
  static constexpr size_t kSize = kCount;
};

template <class T, size_t kCount>
struct Lanes16 {
  T lane[kCount];
};

template <class T, size_t kCount>
struct Mask16 {
  bool lane[kCount];
};

template <class T>
using ScalableTag = Tag<T, 64 / sizeof(T)>;
template <class T, size_t kCount>
using FixedTag = Tag<T, kCount>;
template <class T, size_t kMost>
using CappedTag = Tag<T, std::min(kMost, 64 / sizeof(T))>;
template <class D>
using RepartitionToWide = Tag<double, D::kSize / 2>;
template <class D>
using RebindToUnsigned = Tag<uint32_t, D::kSize>;
template <class D>
using Vec = Lanes16<typename D::Number, D::kSize>;

template <class D>
constexpr size_t MaxLanes(D) {
  return D::kSize;
}

// One element after the other.
template <class T, size_t kCount, class Function>
Lanes16<T, kCount> each(const Function& function) {
  Lanes16<T, kCount> made;
  for (size_t i = 0; i < kCount; ++i) made.lane[i] = function(i);
  return made;
}

template <class D, class T>
Vec<D> Set(D, T x) {
  return each<typename D::Number, D::kSize>([&](size_t) { return x; });
}
template <class D>
Vec<D> Zero(D d) {
  return Set(d, typename D::Number{0});
}
template <class D>
Vec<D> LoadU(D, const typename D::Number* from) {
  Vec<D> made;
  std::memcpy(made.lane, from, sizeof made.lane);
  return made;
}
template <class D>
Vec<D> Load(D d, const typename D::Number* from) {
  return LoadU(d, from);
}
template <class D>
void StoreU(const Vec<D>& x, D, typename D::Number* to) {
  std::memcpy(to, x.lane, sizeof x.lane);
}
template <class D>
void Store(const Vec<D>& x, D d, typename D::Number* to) {
  StoreU(x, d, to);
}

template <class T, size_t kCount>
HWY_NOINLINE Lanes16<T, kCount> MulAdd(const Lanes16<T, kCount>& a, const Lanes16<T, kCount>& b,
                                       const Lanes16<T, kCount>& c) {
  return each<T, kCount>([&](size_t i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
template <class T, size_t kCount>
Lanes16<T, kCount> Add(const Lanes16<T, kCount>& a, const Lanes16<T, kCount>& b) {
  return each<T, kCount>([&](size_t i) { return a.lane[i] + b.lane[i]; });
}
template <class T, size_t kCount>
Lanes16<T, kCount> Sub(const Lanes16<T, kCount>& a, const Lanes16<T, kCount>& b) {
  return each<T, kCount>([&](size_t i) { return a.lane[i] - b.lane[i]; });
}
template <class T, size_t kCount>
Lanes16<T, kCount> Mul(const Lanes16<T, kCount>& a, const Lanes16<T, kCount>& b) {
  return each<T, kCount>([&](size_t i) { return a.lane[i] * b.lane[i]; });
}
// As the processor's: b where they are equal or one is not a number.
template <class T, size_t kCount>
Lanes16<T, kCount> Max(const Lanes16<T, kCount>& a, const Lanes16<T, kCount>& b) {
  return each<T, kCount>([&](size_t i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
template <int kBits, class T, size_t kCount>
Lanes16<T, kCount> ShiftLeft(const Lanes16<T, kCount>& x) {
  return each<T, kCount>([&](size_t i) { return x.lane[i] << kBits; });
}

template <class D>
Mask16<typename D::Number, D::kSize> FirstN(D, size_t count) {
  Mask16<typename D::Number, D::kSize> mask;
  for (size_t i = 0; i < D::kSize; ++i) mask.lane[i] = i < count;
  return mask;
}
template <class T, size_t kCount>
Mask16<T, kCount> Lt(const Lanes16<T, kCount>& a, const Lanes16<T, kCount>& b) {
  Mask16<T, kCount> mask;
  for (size_t i = 0; i < kCount; ++i) mask.lane[i] = a.lane[i] < b.lane[i];
  return mask;
}
template <class T, size_t kCount>
Lanes16<T, kCount> IfThenElse(const Mask16<T, kCount>& mask, const Lanes16<T, kCount>& a,
                              const Lanes16<T, kCount>& b) {
  return each<T, kCount>([&](size_t i) { return mask.lane[i] ? a.lane[i] : b.lane[i]; });
}
template <class T, size_t kCount>
Lanes16<T, kCount> IfThenZeroElse(const Mask16<T, kCount>& mask, const Lanes16<T, kCount>& x) {
  return each<T, kCount>([&](size_t i) { return mask.lane[i] ? T{0} : x.lane[i]; });
}
template <class D>
Vec<D> MaskedLoad(const Mask16<typename D::Number, D::kSize>& mask, D,
                  const typename D::Number* from) {
  using T = typename D::Number;
  return each<T, D::kSize>([&](size_t i) { return mask.lane[i] ? from[i] : T{0}; });
}

template <class D, class T, size_t kCount>
Vec<D> BitCast(D, const Lanes16<T, kCount>& x) {
  Vec<D> made;
  static_assert(sizeof made == sizeof x);
  std::memcpy(&made, &x, sizeof x);
  return made;
}
template <class D, class Half>
Vec<D> Combine(D, const Half& high, const Half& low) {
  constexpr size_t kHalf = D::kSize / 2;
  return each<typename D::Number, D::kSize>(
      [&](size_t i) { return i < kHalf ? low.lane[i] : high.lane[i - kHalf]; });
}
// Within each 16 bytes: the lower, or upper, halves of both in turns.
template <class D>
Vec<D> interleaved(const Vec<D>& a, const Vec<D>& b, size_t from) {
  constexpr size_t kBlock = 16 / sizeof(typename D::Number);
  return each<typename D::Number, D::kSize>([&](size_t i) {
    const size_t at = i / kBlock * kBlock + from * kBlock / 2 + i % kBlock / 2;
    return i % 2 == 0 ? a.lane[at] : b.lane[at];
  });
}
template <class D>
Vec<D> InterleaveLower(D, const Vec<D>& a, const Vec<D>& b) {
  return interleaved<D>(a, b, 0);
}
template <class D>
Vec<D> InterleaveUpper(D, const Vec<D>& a, const Vec<D>& b) {
  return interleaved<D>(a, b, 1);
}
template <class T, size_t kCount>
T GetLane(const Lanes16<T, kCount>& x) {
  return x.lane[0];
}
template <class D>
Vec<D> MaxOfLanes(D d, const Vec<D>& x) {
  return Set(d, *std::max_element(x.lane, x.lane + D::kSize));
}

}  // namespace hwy::N_EMULATED

#undef HWY_NAMESPACE
#define HWY_NAMESPACE N_EMULATED
#undef HWY_MAX_BYTES
#define HWY_MAX_BYTES 64
#undef HWY_LANES
#define HWY_LANES(type) (64 / sizeof(type))
#undef HWY_NATIVE_FMA
#define HWY_NATIVE_FMA 1
#undef HWY_BEFORE_NAMESPACE
#define HWY_BEFORE_NAMESPACE() static_assert(true, "no other instructions than everywhere")
#undef HWY_AFTER_NAMESPACE
#define HWY_AFTER_NAMESPACE() static_assert(true, "nor after it")
