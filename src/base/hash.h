// XXH3: the hash of contents, checksums and tables. Fast and the same on every machine; it does not
// resist someone who looks for collisions. Thread-safe: a Hasher belongs to one thread at a time.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace tutti {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  auto operator<=>(const Hash128&) const = default;
  std::string hex() const;  // 32 digits, as xxh128sum prints it
};

uint64_t hash64(Bytes bytes, uint64_t seed = 0);
Hash128 hash128(Bytes bytes);

// The same hashes of bytes that come in pieces: how they are cut does not matter.
class Hasher {
 public:
  Hasher();

  void update(Bytes bytes);
  // Of everything given until now; more may follow.
  uint64_t digest64() const;
  Hash128 digest128() const;
  void reset(uint64_t seed = 0);

 private:
  // XXH3's own state, checked in hash_kernel.h: kept here so that a Hasher allocates nothing.
  alignas(64) std::array<std::byte, 576> state_;
};

}  // namespace tutti
