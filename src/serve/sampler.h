// Which token comes next.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace tutti {

struct Sampling {
  double temperature = 0;  // 0: the likeliest, the first of equals
  int64_t top_k = 0;       // only so many of the likeliest; 0: all
  double top_p = 1;        // only the likeliest that together have this probability
  uint64_t seed = 0;
};

Result<void> check_sampling(const Sampling& sampling);

// A function of its arguments alone, on every machine: the random number is that of the seed, the
// sequence and the position. Refuses logits of which one is not a number.
Result<int32_t> sample(std::span<const float> logits, const Sampling& sampling, uint64_t sequence,
                       uint64_t position);

}  // namespace tutti
