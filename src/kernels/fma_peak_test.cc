#include "kernels/fma_peak.h"

#include <doctest/doctest.h>

#include "kernels/simd_targets.h"

using namespace tutti;

TEST_CASE("chains of multiply-adds do what they say") {
  // Twelve chains begin with 0 to 11; every lane of each adds a quarter in a round.
  for (const char* target : simd_targets()) {
    use_simd_target(target);
    CHECK(fma_chain_flops() % 24 == 0);
    CHECK(fma_chains(8) == 66 + 12 * 8 * 0.25F);
  }
  CHECK(fma_chain_flops() >= 24);
}
