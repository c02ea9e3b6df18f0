#include "serve/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

using namespace tutti;

namespace {

std::map<int32_t, int> drawn(const std::vector<float>& logits, const Sampling& sampling,
                             int count = 4000) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[*sample(logits, sampling, 3, static_cast<uint64_t>(i))];
  return counts;
}

const std::vector<float> kLogits{0, std::log(2.0F), std::log(5.0F), std::log(2.0F)};

}  // namespace

TEST_CASE("without temperature the first of the likeliest is taken") {
  CHECK(*sample(kLogits, {}, 0, 0) == 2);
  CHECK(*sample(std::vector<float>{1, 4, 4, 2}, {}, 0, 9) == 1);
}

TEST_CASE("tokens come as often as they are likely") {
  const auto counts = drawn(kLogits, {.temperature = 1, .seed = 1});
  CHECK(std::abs(counts.at(0) - 400) < 80);
  CHECK(std::abs(counts.at(1) - 800) < 100);
  CHECK(std::abs(counts.at(2) - 2000) < 130);
  CHECK(std::abs(counts.at(3) - 800) < 100);
  // Half the temperature squares what they are likely.
  const auto cold = drawn(kLogits, {.temperature = 0.5, .seed = 1});
  CHECK(std::abs(cold.at(2) - 4000 * 25 / 34) < 130);
}

TEST_CASE("only the likeliest are drawn from when so asked") {
  CHECK(drawn(kLogits, {.temperature = 1, .top_k = 1}, 50).size() == 1);
  // Of equals the first.
  const auto two = drawn(kLogits, {.temperature = 1, .top_k = 2}, 500);
  CHECK(two.size() == 2);
  CHECK(two.contains(1));
  CHECK(drawn(kLogits, {.temperature = 1, .top_p = 0.45}, 50).size() == 1);
  CHECK(drawn(kLogits, {.temperature = 1, .top_p = 0.6}, 500).size() == 2);
  CHECK(drawn(kLogits, {.temperature = 1, .top_k = 3, .top_p = 0.5}, 500).size() == 1);
}

TEST_CASE("draws differ by seed, sequence and position") {
  std::vector<float> even(64, 0);
  const auto draw = [&](uint64_t seed, uint64_t sequence, uint64_t position) {
    std::vector<int32_t> tokens;
    for (uint64_t i = 0; i < 8; ++i)
      tokens.push_back(*sample(even, {.temperature = 1, .seed = seed}, sequence, position * 8 + i));
    return tokens;
  };
  CHECK(draw(1, 0, 0) == draw(1, 0, 0));
  CHECK(draw(1, 0, 0) != draw(2, 0, 0));
  CHECK(draw(1, 0, 0) != draw(1, 1, 0));
  CHECK(draw(1, 0, 0) != draw(1, 0, 1));
}

TEST_CASE("what cannot be drawn from is refused") {
  const std::vector<float> broken{1, std::numeric_limits<float>::quiet_NaN(), 2};
  CHECK(sample(broken, {}, 4, 17).error().text() ==
        "the logit of token 1 at position 17 of sequence 4 is not a number");
  CHECK(!check_sampling({.temperature = -0.5}).has_value());
  CHECK(!check_sampling({.temperature = std::nan("")}).has_value());
  CHECK(!check_sampling({.top_k = -1}).has_value());
  CHECK(!check_sampling({.top_p = 0}).has_value());
  CHECK(!check_sampling({.top_p = 1.5}).has_value());
  CHECK(check_sampling({}).has_value());
}
