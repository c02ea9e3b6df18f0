#include "kernels/normal.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "base/philox.h"

using namespace tutti;

TEST_CASE("the normal quantile is the inverse of the distribution") {
  for (const double p : {1e-9, 1e-6, 0.001, 0.02424, 0.02426, 0.3, 0.4999, 0.6, 0.97, 0.9999999}) {
    CAPTURE(p);
    const double z = normal_quantile(p);
    CHECK(0.5 * std::erfc(-z / std::sqrt(2.0)) == doctest::Approx(p).epsilon(1e-7));
  }
  CHECK(normal_quantile(0.5) == 0);
  CHECK(normal_quantile(0.25) == -normal_quantile(0.75));
}

TEST_CASE("normal variables have the bits of their quantiles, whoever makes them and from where") {
  constexpr uint64_t kKey = 0x123456789abcdef0;
  for (const char* kernel : normal_kernels()) {
    CAPTURE(kernel);
    use_normal_kernel(kernel);
    for (const uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 34) - 130}) {
      std::vector<float> values(1001);
      normal_values(kKey, first, 0.02, values);
      size_t wrong = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double share = (random_bits(kKey, 0, first + i) + 0.5) * 0x1p-32;
        if (values[i] != static_cast<float>(0.02 * normal_quantile(share))) ++wrong;
      }
      CHECK(wrong == 0);
    }
  }
  use_normal_kernel(normal_kernels().back());
}
