#include "kernels/embedding.h"

#include <doctest/doctest.h>

#include "kernels/kernels_fixture_test.h"

namespace tutti {
namespace {

struct Table {
  int64_t tokens, rows, width;
  std::vector<int32_t> ids;
  Floats table, out, dout, dtable;
  Found bad, bad_grad;

  Table(int64_t tokens, int64_t rows, int64_t width)
      : tokens(tokens),
        rows(rows),
        width(width),
        table(random_floats(rows * width, 1)),
        out(static_cast<size_t>(tokens * width), 7),
        dout(random_floats(tokens * width, 2)),
        dtable(random_floats(rows * width, 3)) {
    for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>(i * i % 31 % rows));
  }
  Embedding forward() { return {tokens, rows, width, ids.data(), table.data(), out.data()}; }
  EmbeddingGrad grad(bool accumulate) {
    return {tokens, rows, width, ids.data(), dout.data(), dtable.data(), accumulate};
  }
};

TEST_CASE("rows of a table, and their gradients in the order of tokens, whoever computes them") {
  const int64_t shapes[][3] = {{1, 1, 1}, {100, 7, 5}, {64, 31, 16}, {333, 20, 77}, {0, 3, 4}};
  for (const auto& [tokens, rows, width] : shapes) {
    for (const bool accumulate : {false, true}) {
      Table expected(tokens, rows, width);
      embedding_reference(expected.forward());
      embedding_grad_reference(expected.grad(accumulate));
      every_way(
          2, [&] { return Table(tokens, rows, width); },
          [&](Table& t, int phase, int thread, int threads) {
            if (phase == 0)
              t.bad[static_cast<size_t>(thread)] = embedding(t.forward(), thread, threads);
            else
              embedding_grad(t.grad(accumulate), thread, threads);
          },
          [&](const Table& t) {
            CHECK(!first_of_all(t.bad));
            CHECK(same_bits(t.out, expected.out));
            CHECK(same_bits(t.dtable, expected.dtable));
          });
    }
  }
}

TEST_CASE("tokens that name no row are reported and left out") {
  every_way(
      2,
      [] {
        Table t(9, 4, 20);
        t.ids = {0, 1, 4, 3, -1, 2, 1 << 30, 0, 1};
        return t;
      },
      [](Table& t, int phase, int thread, int threads) {
        auto& bad = (phase == 0 ? t.bad : t.bad_grad)[static_cast<size_t>(thread)];
        bad = phase == 0 ? embedding(t.forward(), thread, threads)
                         : embedding_grad(t.grad(false), thread, threads);
      },
      [](const Table& t) {
        CHECK(first_of_all(t.bad) == 2);
        CHECK(first_of_all(t.bad_grad) == 2);
        CHECK(t.out[2 * 20 + 5] == 0);
        CHECK(t.out[3 * 20 + 5] == t.table[3 * 20 + 5]);
        CHECK(t.dtable[5] == t.dout[5] + t.dout[7 * 20 + 5]);
      });
}

}  // namespace
}  // namespace tutti
