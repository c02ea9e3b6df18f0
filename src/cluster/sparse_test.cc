#include "cluster/sparse.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tutti {
namespace {

constexpr size_t kMost = 1 << 16;

TEST_CASE("what was packed is unpacked as it was, and zeros cost nothing") {
  std::mt19937 random(7);
  for (const size_t size : {0UL, 1UL, 63UL, 64UL, 65UL, 1000UL, 4096UL}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::byte> bytes(size);
      for (size_t i = 0; i < size / 50; ++i) bytes[random() % size] = std::byte(random());
      const std::string packed = pack_sparse(bytes.data(), bytes.size());
      const auto unpacked = unpack_sparse(as_bytes(packed), kMost);
      REQUIRE(unpacked.has_value());
      CHECK(std::ranges::equal(as_bytes(*unpacked), bytes));
    }
  }
  const std::vector<std::byte> zeros(kMost);
  CHECK(pack_sparse(zeros.data(), zeros.size()).size() == 4);
}

TEST_CASE("bytes that are not packed ones are refused") {
  std::vector<std::byte> bytes(300, std::byte(1));
  const std::string packed = pack_sparse(bytes.data(), bytes.size());
  CHECK_FALSE(unpack_sparse(as_bytes(packed), 299).has_value());
  for (size_t left = 0; left < packed.size(); ++left) {
    const bool only_size = left == 4;
    CHECK(unpack_sparse(as_bytes(packed).first(left), kMost).has_value() == only_size);
  }
  std::mt19937 random(11);
  for (int round = 0; round < 1000; ++round) {
    std::string garbage = packed;
    for (int i = 0; i < 3; ++i) garbage[random() % 16] = static_cast<char>(random());
    const auto unpacked = unpack_sparse(as_bytes(garbage), kMost);
    CHECK((!unpacked.has_value() || unpacked->size() <= kMost));
  }
}

}  // namespace
}  // namespace tutti
