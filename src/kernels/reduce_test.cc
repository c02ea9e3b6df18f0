#include "kernels/reduce.h"

#include <doctest/doctest.h>

#include <limits>

#include "kernels/kernels_fixture_test.h"
#include "kernels/row_groups.h"

namespace tutti {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Chunks {
  Floats sums, square_sums;
  float sum = 0, square_sum = 0;
};

TEST_CASE("sums of an array have the bits of the reference, whoever computes them") {
  for (const int64_t elements : {0, 1, 15, 16, 17, 4095, 4096, 4097, 3 * 4096, 5 * 4096 + 33}) {
    CAPTURE(elements);
    const Floats x = random_floats(elements, 9);
    every_way(
        2,
        [&] {
          const Floats sums(static_cast<size_t>(reduce_chunks(elements)), kNaN);
          return Chunks{sums, sums};
        },
        [&](Chunks& c, int phase, int thread, int threads) {
          if (phase == 0) {
            sum_chunks(x.data(), elements, c.sums.data(), thread, threads);
            sum_square_chunks(x.data(), elements, c.square_sums.data(), thread, threads);
          } else if (thread == 0) {
            c.sum = join_chunks(c.sums.data(), reduce_chunks(elements));
            c.square_sum = join_chunks(c.square_sums.data(), reduce_chunks(elements));
          }
        },
        [&](const Chunks& c) {
          CHECK(c.sum == sum_reference(x.data(), elements));
          CHECK(c.square_sum == sum_squares_reference(x.data(), elements));
        });
    double squares = 0;
    for (const float each : x) squares += static_cast<double>(each) * each;
    CHECK(sum_squares_reference(x.data(), elements) == doctest::Approx(squares).epsilon(1e-6));
  }
}

TEST_CASE("a number that is none is not lost in a sum") {
  Floats x = random_floats(9000, 1);
  x[8999] = kNaN;
  Floats sums(3);
  sum_square_chunks(x.data(), 9000, sums.data(), 0, 1);
  CHECK(std::isnan(join_chunks(sums.data(), 3)));
}

struct Columns {
  Floats out, sums;
};

TEST_CASE("sums over rows have the bits of the reference, whoever computes them") {
  const int64_t shapes[][2] = {{0, 3}, {1, 1}, {64, 16}, {65, 17}, {200, 100}, {700, 33}};
  for (const auto& [rows, columns] : shapes) {
    const int64_t stride = columns + 2;
    const Floats x = random_floats(rows * stride + 1, 3);
    const auto given = [&, rows = rows, columns = columns](Columns& c) {
      return SumRows{rows, columns, x.data(), stride, c.out.data(), c.sums.data()};
    };
    const auto make = [&, rows = rows, columns = columns] {
      return Columns{Floats(static_cast<size_t>(columns), kNaN),
                     Floats(static_cast<size_t>(row_groups(rows) * columns), kNaN)};
    };
    Columns expected = make();
    sum_rows_reference(given(expected));
    every_way(
        2, make,
        [&](Columns& c, int phase, int thread, int threads) {
          (phase == 0 ? sum_rows : sum_rows_join)(given(c), thread, threads);
        },
        [&](const Columns& c) { CHECK(same_bits(c.out, expected.out)); });
  }
}

}  // namespace
}  // namespace tutti
