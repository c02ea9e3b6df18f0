#include "base/hash.h"

#include <fmt/format.h>

#include "base/hash_kernel.h"

namespace tutti {
namespace {

const HashKernel& kernel() {
  static const HashKernel& chosen = __builtin_cpu_supports("avx2") ? kHashAvx2 : kHashSse2;
  return chosen;
}

}  // namespace

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

uint64_t hash64(Bytes bytes, uint64_t seed) {
  return kernel().hash64(bytes.data(), bytes.size(), seed);
}

Hash128 hash128(Bytes bytes) {
  Hash128 hash;
  kernel().hash128(bytes.data(), bytes.size(), &hash.high, &hash.low);
  return hash;
}

Hasher::Hasher() {
  static_assert(sizeof state_ == kHashStateBytes && alignof(Hasher) == kHashStateAlignment);
  reset();
}
void Hasher::reset(uint64_t seed) { kernel().reset(state_.data(), seed); }
void Hasher::update(Bytes bytes) { kernel().update(state_.data(), bytes.data(), bytes.size()); }
uint64_t Hasher::digest64() const { return kernel().digest64(state_.data()); }

Hash128 Hasher::digest128() const {
  Hash128 hash;
  kernel().digest128(state_.data(), &hash.high, &hash.low);
  return hash;
}

}  // namespace tutti
