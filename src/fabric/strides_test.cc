#include "fabric/strides.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tutti {
namespace {

std::vector<std::byte> numbered(size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(i * 7);
  return all;
}

TEST_CASE("what lies apart is put together from any byte on, as a plain walk does") {
  std::mt19937_64 random(1);
  const auto heap = numbered(1 << 16);
  for (int round = 0; round < 300; ++round) {
    Strides strides{.offset = random() % 100, .run = 1 + random() % 9};
    uint64_t span = strides.run;
    for (uint64_t i = 0; i < random() % 4; ++i) {
      const uint64_t count = 1 + random() % 4;
      const uint64_t stride = span + random() % 3;
      strides.repeat(count, stride);
      span = stride * count;
    }
    std::vector<uint64_t> places{strides.offset};
    for (uint32_t i = 0; i < strides.loop_count; ++i) {
      const auto inner = places;
      for (uint64_t n = 1; n < strides.loops[i].count; ++n)
        for (const uint64_t place : inner) places.push_back(place + n * strides.loops[i].stride);
    }
    std::vector<std::byte> plain;
    for (const uint64_t place : places)
      for (uint64_t byte = 0; byte < strides.run; ++byte) plain.push_back(heap[place + byte]);
    REQUIRE(strides.bytes() == plain.size());
    CHECK(strides.fits(heap.size(), plain.size()));
    const uint64_t first = random() % plain.size();
    std::vector<std::byte> got(1 + random() % (plain.size() - first));
    strides.gather(heap.data(), first, got);
    CHECK(std::equal(got.begin(), got.end(), plain.begin() + static_cast<int64_t>(first)));
    const std::string encoded = strides.encode();
    const auto decoded = Strides::decode(strides.offset, as_bytes(encoded));
    REQUIRE(decoded.has_value());
    CHECK(*decoded == strides);
  }
}

TEST_CASE("what is contiguous is one run") {
  Strides strides{.run = 8};
  strides.repeat(4, 8);
  strides.repeat(1, 1000);
  CHECK(strides.loop_count == 0);
  CHECK(strides.run == 32);
  strides.repeat(3, 100);
  strides.repeat(2, 300);
  CHECK(strides.loop_count == 1);
  CHECK(strides.loops[0].count == 6);
}

TEST_CASE("strides that reach beyond the heap, or lie about their size, do not fit") {
  Strides strides{.offset = 10, .run = 10, .loop_count = 1, .loops = {{{4, 30}}}};
  CHECK(strides.fits(110, 40));
  CHECK_FALSE(strides.fits(109, 40));
  CHECK_FALSE(strides.fits(110, 41));
  CHECK_FALSE(strides.fits(110, 39));
  strides.loops[0] = {~uint64_t{0}, ~uint64_t{0}};
  CHECK_FALSE(strides.fits(~uint64_t{0}, 40));
  strides.loops[0] = {0, 1};
  CHECK_FALSE(strides.fits(110, 0));
  CHECK_FALSE(Strides{.offset = ~uint64_t{0}, .run = 2}.fits(100, 2));
  CHECK_FALSE(Strides{.run = 0}.fits(100, 0));
  strides = {
      .run = 1, .loop_count = 3, .loops = {{{1ULL << 40, 0}, {1ULL << 40, 0}, {1ULL << 48, 0}}}};
  CHECK_FALSE(strides.fits(100, 0));
}

TEST_CASE("garbled strides are refused") {
  const std::string bytes(200, '\1');
  for (const size_t size : {0UL, 7UL, 9UL, 16UL, 152UL, 200UL})
    CHECK_FALSE(Strides::decode(0, as_bytes(bytes).first(size)).has_value());
}

}  // namespace
}  // namespace tutti
