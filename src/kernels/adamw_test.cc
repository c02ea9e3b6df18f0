#include "kernels/adamw.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/adamw_panels.h"

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

// A matrix of weights, with a panel of it and one of its transpose.
struct PackedWeights {
  std::vector<float> weights, first, second, gradient;
  std::vector<float> packed[2];
  std::vector<GemmPanel> panels;
  int64_t columns;

  PackedWeights(int64_t rows, int64_t width) : columns(width) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * columns; ++i) {
      weights.push_back(normal(random));
      first.push_back(normal(random));
      second.push_back(std::abs(normal(random)));
      gradient.push_back(normal(random));
    }
    const MatrixView as_it_is{weights.data(), columns, 1};
    const MatrixView turned{weights.data(), 1, columns};
    panels = {{.b = as_it_is, .n = columns, .k = rows, .packed = nullptr},
              {.b = turned, .n = rows, .k = columns, .packed = nullptr}};
    for (size_t i = 0; i < 2; ++i) {
      packed[i].resize(gemm_panel_bytes(panels[i].n, panels[i].k) / sizeof(float) + 1);
      panels[i].packed = packed[i].data();
    }
  }
  AdamWRows rows() {
    return {.arrays = {weights.data(), first.data(), second.data(), weights.data(), first.data(),
                       second.data(), gradient.data(), weights.size()},
            .columns = columns,
            .panels = panels};
  }
};

TEST_CASE("panels that are written row by row are those of the new weights") {
  for (const char* name : gemm_kernels()) {
    CAPTURE(name);
    use_gemm_kernel(name);
    for (const int64_t rows : {1, 31, 32, 33, 100, 600})
      for (const int64_t columns : {1, 17, 96, 530}) {
        CAPTURE(rows);
        CAPTURE(columns);
        PackedWeights trial(rows, columns);
        PackedWeights expected(rows, columns);
        const AdamWStep step = adamw_step({}, 3);
        // From the last rows to the first: their order does not matter.
        for (int64_t row = (rows - 1) / kRowsToPack * kRowsToPack; row >= 0; row -= kRowsToPack)
          adamw_update_rows(step, trial.rows(), row);
        adamw_update_rows_reference(step, expected.rows());
        CHECK(trial.weights == expected.weights);
        CHECK(trial.second == expected.second);
        for (size_t i = 0; i < 2; ++i) CHECK(trial.packed[i] == expected.packed[i]);
      }
  }
  use_gemm_kernel(gemm_kernels().back());
}

}  // namespace
}  // namespace tutti
