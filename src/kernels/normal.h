// Normal variables out of a stream of random bits, by basic arithmetic alone: every processor gives
// the same bits, and no machine's library is asked.
#pragma once

#include <cstdint>
#include <span>

namespace tutti {

// The value below which a standard normal variable is with this probability, between 0 and 1.
double normal_quantile(double probability);

// The elements from `first` on of the stream of a key (base/philox.h, at step 0), each made a
// normal variable with this deviation: scale * normal_quantile((bits + 0.5) / 2^32).
void normal_values(uint64_t key, uint64_t first, double scale, std::span<float> values);

// For tests: the kernels this processor can run, by name, the fastest last, and choosing one.
std::span<const char* const> normal_kernels();
void use_normal_kernel(const char* name);

}  // namespace tutti
