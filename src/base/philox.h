// Philox 4x32-10 (Salmon et al., 2011): random bits as a function of a key and a counter, so that
// any element of a stream can be had by anyone, in any order.
#pragma once

#include <array>
#include <cstdint>

namespace tutti {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox(uint64_t key, PhiloxBlock counter) {
  uint32_t low = static_cast<uint32_t>(key);
  uint32_t high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ low, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ high, static_cast<uint32_t>(a)};
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
  return counter;
}

// The element of a stream at a step: four of them share a block.
constexpr uint32_t random_bits(uint64_t key, uint64_t step, uint64_t index) {
  const uint64_t block = index / 4;
  return philox(key, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                      static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)})[index % 4];
}

}  // namespace tutti
