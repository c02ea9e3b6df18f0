#include "base/philox.h"

#include <doctest/doctest.h>

using namespace tutti;

TEST_CASE("philox gives the published blocks") {
  CHECK(philox(0, {0, 0, 0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(~uint64_t{0}, {~0U, ~0U, ~0U, ~0U}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("elements of a stream are those of its blocks") {
  const PhiloxBlock third = philox(7, {2, 0, 5, 0});
  for (uint32_t i = 0; i < 4; ++i) CHECK(random_bits(7, 5, 8 + i) == third[i]);
}
