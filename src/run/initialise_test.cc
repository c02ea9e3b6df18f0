#include "run/initialise.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "base/philox.h"
#include "compile/interpret.h"
#include "world/real/thread_team.h"

using namespace tutti;

namespace {

std::vector<float> values_of(const Parameter& parameter, int64_t seed, int threads) {
  ThreadTeam team(threads);
  std::vector<float> values(static_cast<size_t>(parameter.type.elements()), -7);
  initialise(parameter, seed, values, team);
  return values;
}

}  // namespace

TEST_CASE("weights begin as their name, seed and place say") {
  const Parameter weight{"h.*.w", {DType::f32, {{"layer", 3}, {"a", 333}, {"b", 101}}}, normal(2)};
  const auto values = values_of(weight, 5, 1);
  CHECK(values_of(weight, 5, 2) == values);
  CHECK(values_of(weight, 6, 1) != values);

  // A layer's part is what it would be alone, and any piece of it can be had.
  const Parameter second{"h.1.w", {DType::f32, {{"a", 333}, {"b", 101}}}, normal(2)};
  const auto alone = values_of(second, 5, 1);
  const auto size = std::ssize(alone);
  CHECK(std::equal(alone.begin(), alone.end(), values.begin() + size));
  CHECK(!std::equal(alone.begin(), alone.end(), values.begin()));
  std::vector<float> piece(10);
  initial_values(second.init, 5, "h.1.w", 77, piece);
  CHECK(std::equal(piece.begin(), piece.end(), alone.begin() + 77));

  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  const auto count = static_cast<double>(values.size());
  CHECK(std::abs(sum / count) < 0.03);
  CHECK(std::sqrt(squares / count) == doctest::Approx(2).epsilon(0.01));
  CHECK(std::ranges::max(values) > 7);
}

TEST_CASE("initial bits are the same on every machine") {
  std::vector<float> values(100'000);
  initial_values(normal(0.02), 1, "wte.weight", 0, values);
  CHECK(hash64(std::as_bytes(std::span(values))) == 1471492241310807370U);
}

TEST_CASE("uniform weights fill their width, zeros and ones are") {
  const Type type{DType::f32, {{"a", 1001}}};
  const auto uniform_values = values_of({"w", type, uniform(0.5)}, 1, 2);
  CHECK(std::ranges::min(uniform_values) == doctest::Approx(-0.5).epsilon(0.01));
  CHECK(std::ranges::max(uniform_values) == doctest::Approx(0.5).epsilon(0.01));
  const uint32_t bits = random_bits(stream_key(1, "initial/w"), 0, 998);
  CHECK(uniform_values[998] == doctest::Approx(bits * 0x1p-32 - 0.5));
  CHECK(values_of({"w", type, kZeros}, 1, 2) == std::vector<float>(1001, 0));
  CHECK(values_of({"w", type, kOnes}, 1, 2) == std::vector<float>(1001, 1));
}
