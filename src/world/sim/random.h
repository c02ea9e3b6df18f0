// Random numbers as a function of (seed, host, stream, count): what one host draws, and for what,
// never moves another's draws.
#pragma once

#include <algorithm>
#include <cstring>

#include "world/random.h"

namespace tutti {

enum class RandomStream : uint32_t { program, network, disk, fault, director, clock, luck };

// The finaliser of SplitMix64.
inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

inline uint64_t random_key(uint64_t seed, uint32_t host, RandomStream stream) {
  const uint64_t who = uint64_t{host} << 32 | static_cast<uint32_t>(stream);
  return mix_bits(mix_bits(seed + 0x9E3779B97F4A7C15) ^ (who * 0xD6E8FEB86659FD93));
}

class SimRandom final : public Random {
 public:
  explicit SimRandom(uint64_t key) : state_(key) {}
  uint64_t next() override { return mix_bits(state_ += 0x9E3779B97F4A7C15); }
  void fill(MutableBytes bytes) override {
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t word = next();
      std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
    }
  }

 private:
  uint64_t state_;  // the key plus the count in steps of a Weyl sequence
};

}  // namespace tutti
