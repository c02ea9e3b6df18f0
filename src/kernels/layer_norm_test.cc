#include "kernels/layer_norm.h"

#include <doctest/doctest.h>

#include <limits>

#include "kernels/kernels_fixture_test.h"

namespace tutti {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Rows {
  int64_t rows, width;
  Floats x, scale, shift, dy;
  Floats y, mean, inverse, dx, dscale, dshift, sums;

  Rows(int64_t rows, int64_t width, float deviation = 1)
      : rows(rows),
        width(width),
        x(random_floats(rows * width, 1, deviation)),
        scale(random_floats(width, 2)),
        shift(random_floats(width, 3)),
        dy(random_floats(rows * width, 4)),
        y(x.size(), kNaN),
        mean(static_cast<size_t>(rows), kNaN),
        inverse(mean),
        dx(y),
        dscale(scale.size(), kNaN),
        dshift(dscale),
        sums(layer_norm_grad_floats(rows, width), kNaN) {}

  LayerNorm forward() {
    return {rows,  width,    x.data(),    scale.data(),  shift.data(),
            1e-5F, y.data(), mean.data(), inverse.data()};
  }
  LayerNormGrad grad() {
    return {rows,           width,     dy.data(),     x.data(),      scale.data(), mean.data(),
            inverse.data(), dx.data(), dscale.data(), dshift.data(), sums.data()};
  }
};

void run_layer(Rows& r, int phase, int thread, int threads) {
  if (phase == 0) layer_norm(r.forward(), thread, threads);
  if (phase == 1) layer_norm_grad_rows(r.grad(), thread, threads);
  if (phase == 2) layer_norm_grad_join(r.grad(), thread, threads);
}

void run_rms(Rows& r, int phase, int thread, int threads) {
  if (phase == 0) rms_norm(r.forward(), thread, threads);
  if (phase == 1) rms_norm_grad_rows(r.grad(), thread, threads);
  if (phase == 2) rms_norm_grad_join(r.grad(), thread, threads);
}

TEST_CASE("norms and their gradients have the bits of the reference, whoever computes them") {
  const int64_t shapes[][2] = {{1, 1}, {3, 7}, {64, 16}, {65, 17}, {200, 48}, {321, 131}, {0, 5}};
  for (const auto& [rows, width] : shapes) {
    CAPTURE(rows);
    CAPTURE(width);
    Rows expected(rows, width);
    layer_norm_reference(expected.forward());
    layer_norm_grad_reference(expected.grad());
    Rows expected_rms(rows, width);
    rms_norm_reference(expected_rms.forward());
    rms_norm_grad_reference(expected_rms.grad());
    const auto make = [&] { return Rows(rows, width); };
    const auto same_as = [](const Rows& other) {
      return [&](const Rows& r) {
        CHECK(same_bits(r.y, other.y));
        CHECK(same_bits(r.mean, other.mean));
        CHECK(same_bits(r.inverse, other.inverse));
        CHECK(same_bits(r.dx, other.dx));
        CHECK(same_bits(r.dscale, other.dscale));
        CHECK(same_bits(r.dshift, other.dshift));
      };
    };
    every_way(3, make, run_layer, same_as(expected));
    every_way(3, make, run_rms, same_as(expected_rms));
  }
}

// In double precision, from the definition; centred or not.
struct Exact {
  std::vector<double> y, dx, dscale, dshift;

  Exact(const Rows& r, bool centred)
      : y(r.x.size()), dx(r.x.size()), dscale(r.scale.size()), dshift(r.scale.size()) {
    const auto width = static_cast<size_t>(r.width);
    for (size_t row = 0; row < static_cast<size_t>(r.rows); ++row) {
      const float* x = &r.x[row * width];
      const float* dy = &r.dy[row * width];
      double mean = 0, variance = 0, g_mean = 0, g_normal_mean = 0;
      for (size_t i = 0; i < width && centred; ++i) mean += x[i] / static_cast<double>(width);
      for (size_t i = 0; i < width; ++i)
        variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(width);
      const double inverse = 1 / std::sqrt(variance + static_cast<double>(1e-5F));
      for (size_t i = 0; i < width; ++i) {
        const double normal = (x[i] - mean) * inverse;
        const double g = static_cast<double>(dy[i]) * r.scale[i];
        y[row * width + i] = normal * r.scale[i] + (centred ? r.shift[i] : 0);
        dscale[i] += dy[i] * normal;
        dshift[i] += dy[i];
        if (centred) g_mean += g / static_cast<double>(width);
        g_normal_mean += g * normal / static_cast<double>(width);
      }
      for (size_t i = 0; i < width; ++i)
        dx[row * width + i] = inverse * (static_cast<double>(dy[i]) * r.scale[i] - g_mean -
                                         (x[i] - mean) * inverse * g_normal_mean);
    }
  }
};

TEST_CASE("norms are those of the formulas in double precision, up to rounding") {
  for (const float deviation : {1.0F, 1e4F, 1e-3F}) {
    Rows layer(130, 77, deviation);
    Rows rms(130, 77, deviation);
    for (int phase = 0; phase < 3; ++phase) {
      run_layer(layer, phase, 0, 1);
      run_rms(rms, phase, 0, 1);
    }
    const Exact centred(layer, true);
    const Exact plain(rms, false);
    CHECK(relative_error(layer.y, centred.y) < 1e-6);
    CHECK(relative_error(layer.dx, centred.dx) < 2e-6);
    CHECK(relative_error(layer.dscale, centred.dscale) < 2e-6);
    CHECK(relative_error(layer.dshift, centred.dshift) < 1e-6);
    CHECK(relative_error(rms.y, plain.y) < 1e-6);
    CHECK(relative_error(rms.dx, plain.dx) < 2e-6);
    CHECK(relative_error(rms.dscale, plain.dscale) < 2e-6);
  }
}

TEST_CASE("a norm may be in place, and what is not a number stays in its row") {
  Rows apart(5, 37);
  layer_norm(apart.forward(), 0, 1);
  Rows in_place(5, 37);
  LayerNorm norm = in_place.forward();
  norm.y = in_place.x.data();
  layer_norm(norm, 0, 1);
  CHECK(same_bits(in_place.x, apart.y));

  every_way(
      1,
      [] {
        Rows r(3, 37);
        r.x[37 + 36] = kNaN;
        return r;
      },
      run_layer,
      [](const Rows& r) {
        for (size_t i = 0; i < r.y.size(); ++i) CHECK(std::isnan(r.y[i]) == (i / 37 == 1));
      });
}

}  // namespace
}  // namespace tutti
