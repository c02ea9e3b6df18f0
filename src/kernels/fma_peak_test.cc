#include "kernels/fma_peak.h"

#include <doctest/doctest.h>

using namespace tutti;

TEST_CASE("chains of multiply-adds do what they say") {
  // Every lane of twelve chains adds a quarter in each round.
  CHECK(fma_chain_flops() % 24 == 0);
  if (fma_chain_flops() > 24) CHECK(fma_chains(8) == 12 * 8 * 0.25F);
}
