#include "kernels/adamw.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

namespace tutti {
namespace {

struct Arrays {
  std::vector<float> weights, first, second, gradient;

  explicit Arrays(size_t elements) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < elements; ++i) {
      weights.push_back(normal(random));
      first.push_back(normal(random) * 0.1F);
      second.push_back(std::abs(normal(random)) * 0.01F);
      gradient.push_back(normal(random));
    }
  }
  AdamWArrays in_place() {
    return {weights.data(), first.data(),  second.data(),   weights.data(),
            first.data(),   second.data(), gradient.data(), weights.size()};
  }
};

TEST_CASE("an update is that of the formula, in double precision, up to rounding") {
  Arrays arrays(1000);
  const Arrays before = arrays;
  const AdamW options{.learning_rate = 0.01, .weight_decay = 0.1};
  adamw_update(adamw_step(options, 3, 0.5F), arrays.in_place());
  for (size_t i = 0; i < 1000; ++i) {
    const double g = before.gradient[i] * 0.5;
    const double m = 0.9 * before.first[i] + 0.1 * g;
    const double v = 0.999 * before.second[i] + 0.001 * g * g;
    const double m_hat = m / (1 - std::pow(0.9, 3));
    const double v_hat = v / (1 - std::pow(0.999, 3));
    const double w = before.weights[i] * (1 - 0.001) - 0.01 * m_hat / (std::sqrt(v_hat) + 1e-8);
    CHECK(arrays.weights[i] == doctest::Approx(w).epsilon(1e-5));
    CHECK(arrays.first[i] == doctest::Approx(m).epsilon(1e-5));
    CHECK(arrays.second[i] == doctest::Approx(v).epsilon(1e-5));
  }
}

TEST_CASE("every kernel gives the same bits, in place and elsewhere, at every length") {
  for (const size_t elements : {0UL, 1UL, 7UL, 16UL, 333UL, 4096UL}) {
    std::vector<std::vector<float>> seen;
    for (const char* name : adamw_kernels()) {
      use_adamw_kernel(name);
      Arrays arrays(elements);
      adamw_update(adamw_step({}, 7), arrays.in_place());
      seen.push_back(arrays.weights);
      Arrays inputs(elements);
      Arrays outputs(elements);
      AdamWArrays elsewhere = inputs.in_place();
      elsewhere.weights_out = outputs.weights.data();
      elsewhere.first_out = outputs.first.data();
      elsewhere.second_out = outputs.second.data();
      adamw_update(adamw_step({}, 7), elsewhere);
      CHECK(outputs.weights == arrays.weights);
      CHECK(outputs.second == arrays.second);
    }
    for (const auto& weights : seen) CHECK(weights == seen[0]);
  }
}

}  // namespace
}  // namespace tutti
