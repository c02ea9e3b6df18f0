#include "kernels/cross_entropy.h"

#include <doctest/doctest.h>

#include <limits>

#include "kernels/kernels_fixture_test.h"
#include "kernels/scalar.h"

namespace tutti {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Logits {
  int64_t rows, vocab, stride;
  Floats logits, dloss, loss;
  std::vector<int32_t> targets;
  Found bad;

  Logits(int64_t rows, int64_t vocab, float deviation = 2)
      : rows(rows),
        vocab(vocab),
        stride(vocab + 3),
        logits(random_floats(rows * stride, 1, deviation)),
        dloss(random_floats(rows, 2)),
        loss(static_cast<size_t>(rows), kNaN) {
    for (int64_t row = 0; row < rows; ++row)
      targets.push_back(static_cast<int32_t>(row * 7919 % (vocab + 1)) - (row % 5 == 4 ? 1 : 0));
    for (int32_t& target : targets)
      if (target == vocab) target = -1;
  }
  CrossEntropy given(bool with_gradient = true) {
    return {rows,       vocab,          logits.data(),
            stride,     targets.data(), with_gradient ? dloss.data() : nullptr,
            loss.data()};
  }
};

void run(Logits& l, int /*phase*/, int thread, int threads) {
  l.bad[static_cast<size_t>(thread)] = cross_entropy(l.given(), thread, threads);
}

TEST_CASE("cross-entropy has the bits of the reference, whoever computes it") {
  const int64_t shapes[][2] = {{1, 1}, {4, 2}, {7, 16}, {9, 65}, {20, 1003}};
  for (const auto& [rows, vocab] : shapes) {
    Logits expected(rows, vocab);
    cross_entropy_reference(expected.given());
    every_way(
        1, [&] { return Logits(rows, vocab); }, run,
        [&](const Logits& l) {
          CHECK(same_bits(l.logits, expected.logits));
          CHECK(same_bits(l.loss, expected.loss));
          CHECK(!first_of_all(l.bad));
        });
  }
}

TEST_CASE("cross-entropy is that of the formula in double precision, also of large logits") {
  for (const float deviation : {1.0F, 30.0F, 1e4F}) {
    Logits l(50, 301, deviation);
    const Logits before = l;
    Logits loss_only = l;
    run(l, 0, 0, 1);
    cross_entropy(loss_only.given(false), 0, 1);
    CHECK(same_bits(loss_only.logits, before.logits));
    CHECK(same_bits(loss_only.loss, l.loss));
    std::vector<double> loss, grad = doubles(before.logits);
    for (int64_t row = 0; row < l.rows; ++row) {
      const float* x = &before.logits[static_cast<size_t>(row * l.stride)];
      double* dx = &grad[static_cast<size_t>(row * l.stride)];
      const int32_t target = l.targets[static_cast<size_t>(row)];
      double highest = x[0], sum = 0;
      for (int64_t i = 0; i < l.vocab; ++i) highest = std::fmax(highest, x[i]);
      for (int64_t i = 0; i < l.vocab; ++i) sum += std::exp(x[i] - highest);
      loss.push_back(target < 0 ? 0 : highest + std::log(sum) - x[target]);
      for (int64_t i = 0; i < l.vocab; ++i)
        dx[i] = target < 0 ? 0
                           : (std::exp(x[i] - highest) / sum - (i == target ? 1 : 0)) *
                                 l.dloss[static_cast<size_t>(row)];
    }
    CHECK(relative_error(l.loss, loss) < 3e-7);
    Floats inside = l.logits;
    for (int64_t row = 0; row < l.rows; ++row)
      for (int64_t i = l.vocab; i < l.stride; ++i) {
        const auto between = static_cast<size_t>(row * l.stride + i);
        CHECK(l.logits[between] == before.logits[between]);
        inside[between] = 0;
        grad[between] = 0;
      }
    CHECK(relative_error(inside, grad) < 5e-7);
  }
}

TEST_CASE("targets past the vocabulary are named, and what is not a number stays in its row") {
  every_way(
      1,
      [] {
        Logits l(6, 20);
        l.targets = {3, 4, 20, 5, 1 << 30, 0};
        l.logits[static_cast<size_t>(l.stride) + 19] = kNaN;
        return l;
      },
      run,
      [](const Logits& l) {
        CHECK(first_of_all(l.bad) == 2);
        for (size_t row = 0; row < 6; ++row) {
          CHECK(std::isnan(l.loss[row]) == (row == 1));
          CHECK(std::isnan(l.logits[row * 23]) == (row == 1));
        }
        CHECK(l.loss[2] == 0);
        CHECK(l.logits[2 * 23 + 7] == 0);
        CHECK(l.loss[4] == 0);
      });
}

TEST_CASE("exp and log are within 2e-7 of the true ones") {
  for (float x = -87; x < 88; x += 0.0137F) {
    const double exact = std::exp(static_cast<double>(x));
    CHECK(std::abs(exp_scalar(x) - exact) <= 1.2e-7 * exact);
  }
  CHECK(exp_scalar(-std::numeric_limits<float>::infinity()) == 0);
  CHECK(exp_scalar(-1e4F) == 0);
  CHECK(exp_scalar(0) == 1);
  CHECK(std::isnan(exp_scalar(kNaN)));
  for (float x = 1e-37F; x < 1e38F; x *= 1.0173F) {
    const double exact = std::log(static_cast<double>(x));
    CHECK(std::abs(log_scalar(x) - exact) <= 1e-7 * std::abs(exact));
  }
  CHECK(log_scalar(1) == 0);
  CHECK(std::isnan(log_scalar(kNaN)));
}

}  // namespace
}  // namespace tutti
