#include "kernels/gemm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <barrier>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/gemm_panel.h"

namespace tutti {
namespace {

enum class Layout { rows, columns, neither };  // what is contiguous

// An array of exactly the size that is used, so that the address sanitizer sees what reads past it.
struct Matrix {
  std::vector<float> data;
  MatrixView view;

  Matrix(int64_t rows, int64_t columns, Layout layout, std::mt19937& random) {
    const int64_t gap = 3;
    if (layout == Layout::rows) view = {nullptr, columns + gap, 1};
    if (layout == Layout::columns) view = {nullptr, 1, rows + gap};
    if (layout == Layout::neither) view = {nullptr, 2 * columns + gap, 2};
    if (rows > 0 && columns > 0)
      data.resize((rows - 1) * view.row_stride + (columns - 1) * view.column_stride + 1, 1e30F);
    view.data = data.data();
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        data[i * view.row_stride + j * view.column_stride] = normal(random);
  }
};

constexpr float kOutside = 12345;
// Workspaces are never cleared: stale numbers must not matter.
constexpr std::byte kStale{0xff};

// The same product, by the reference and by a kernel.
struct Trial {
  Matrix a;
  Matrix b;
  Gemm gemm;
  std::vector<float> before;
  std::vector<float> expected;

  Trial(int64_t m, int64_t n, int64_t k, Layout of_a, Layout of_b, bool accumulate,
        std::mt19937& random)
      : a(m, k, of_a, random), b(k, n, of_b, random) {
    const int64_t stride = n + 5;
    before.assign(m * stride, kOutside);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) before[i * stride + j] = normal(random);
    gemm = {.m = m,
            .n = n,
            .k = k,
            .a = a.view,
            .b = b.view,
            .c = nullptr,
            .c_row_stride = stride,
            .accumulate = accumulate};
    refer();
  }
  void refer() {
    expected = before;
    gemm.c = expected.data();
    gemm_reference(gemm);
  }
  std::vector<float> run(int threads, GemmEdge edge = {}, std::vector<float>* into = nullptr) {
    std::vector<float> own;
    std::vector<float>& c = into != nullptr ? *into : own;
    c = before;
    gemm.c = c.data();
    gemm.edge = edge;
    gemm.threads = threads;
    std::vector<std::byte> shared(gemm_shared_bytes(gemm), kStale);
    for (int phase = 0; phase < gemm_phases(gemm); ++phase)
      for (int thread = 0; thread < threads; ++thread) {
        std::vector<std::byte> workspace(gemm_workspace_bytes(gemm), kStale);
        Turns turns(thread, threads);
        tutti::gemm(gemm, {phase, thread, &turns, shared.data(), workspace.data()});
      }
    gemm.edge = {};
    return c;
  }
  bool agrees(int threads) { return same_bits(run(threads)); }
  bool same_bits(const std::vector<float>& c) const {
    for (size_t i = 0; i < c.size(); ++i)
      if (std::bit_cast<uint32_t>(c[i]) != std::bit_cast<uint32_t>(expected[i])) return false;
    return true;
  }
};

// A panel of B, packed in parts.
struct Packed {
  std::vector<std::byte> room;
  GemmPanel panel;

  explicit Packed(const Gemm& gemm)
      : room(gemm_panel_bytes(gemm.n, gemm.k) + 64, kStale),
        panel{.b = gemm.b, .n = gemm.n, .k = gemm.k, .packed = nullptr} {
    void* at = room.data();
    size_t left = room.size();
    panel.packed = static_cast<float*>(std::align(64, room.size() - 64, at, left));
    const int64_t k = gemm.k / 3;
    const int64_t column = std::min(gemm.n, gemm.n / 2 / kPanelColumns * kPanelColumns);
    gemm_pack_panel(panel, {k, gemm.k, 0, column});
    gemm_pack_panel(panel, {0, k, 0, gemm.n});
    gemm_pack_panel(panel, {k, gemm.k, column, gemm.n});
  }
};

constexpr Layout kLayouts[] = {Layout::rows, Layout::columns};

void check_shape(int64_t m, int64_t n, int64_t k, std::mt19937& random) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  for (const Layout of_a : kLayouts) {
    for (const Layout of_b : kLayouts) {
      const bool accumulate = random() % 2 == 0;
      CAPTURE(static_cast<int>(of_a));
      CAPTURE(static_cast<int>(of_b));
      CAPTURE(accumulate);
      Trial trial(m, n, k, of_a, of_b, accumulate, random);
      for (int threads = 1; threads <= 3; ++threads) {
        CAPTURE(threads);
        CHECK(trial.agrees(threads));
      }
    }
  }
}

template <typename Body>
void with_every_kernel(Body body) {
  for (const char* name : gemm_kernels()) {
    CAPTURE(name);
    use_gemm_kernel(name);
    body();
  }
  use_gemm_kernel(gemm_kernels().back());
}

TEST_CASE("a product has the bits of the reference, whatever remains of tiles") {
  with_every_kernel([] {
    std::mt19937 random(1);
    for (int64_t m = 1; m <= 15; ++m)
      for (int64_t n = 1; n <= 34; ++n) check_shape(m, n, 1 + (m + n) % 7, random);
  });
}

TEST_CASE("a product has the bits of the reference, at any size") {
  with_every_kernel([] {
    std::mt19937 random(2);
    const auto size = [&] { return static_cast<int64_t>(1 + random() % 200); };
    for (int i = 0; i < 20; ++i) check_shape(size(), size(), size(), random);
  });
}

TEST_CASE("a product has the bits of the reference when it has several blocks") {
  std::mt19937 random(3);
  check_shape(5, 6200, 3, random);    // blocks of columns
  check_shape(430, 20, 70, random);   // blocks of rows
  check_shape(13, 33, 1000, random);  // blocks of k
  check_shape(400, 200, 400, random);
  check_shape(200, 400, 800, random);
  check_shape(1100, 65, 400, random);  // thin
  check_shape(1, 700, 900, random);
  check_shape(700, 1, 900, random);
}

TEST_CASE("a product of few rows has the bits of the reference, however wide and deep") {
  with_every_kernel([] {
    std::mt19937 random(10);
    for (int64_t m = 1; m <= 33; ++m) check_shape(m, 4096 / m + 70 + m, 5 + m, random);
    check_shape(1, 150, 1027, random);
    check_shape(9, 137, 1030, random);
    Trial neither(6, 90, 21, Layout::neither, Layout::columns, true, random);
    CHECK(neither.agrees(2));
  });
}

TEST_CASE("neither side of a matrix needs to be contiguous") {
  with_every_kernel([] {
    std::mt19937 random(4);
    for (const bool accumulate : {false, true}) {
      Trial both(37, 51, 43, Layout::neither, Layout::neither, accumulate, random);
      CHECK(both.agrees(2));
      Trial thin(90, 9, 43, Layout::neither, Layout::rows, accumulate, random);
      CHECK(thin.agrees(2));
    }
  });
}

TEST_CASE("without k, C is zero, or as it was") {
  with_every_kernel([] {
    std::mt19937 random(5);
    for (const int64_t rows : {1, 17, 40})
      for (const bool accumulate : {false, true}) {
        Trial trial(rows, 19, 0, Layout::rows, Layout::rows, accumulate, random);
        CHECK(trial.agrees(2));
        CHECK(trial.expected[0] == (accumulate ? trial.before[0] : 0.0F));
      }
  });
}

TEST_CASE("nothing is done without rows or columns") {
  with_every_kernel([] {
    std::mt19937 random(6);
    GemmEdge edge{
        .finish = [](void* const*, long, long, long, long) { FAIL("an edge of nothing"); }};
    for (const auto& [m, n] : {std::pair{0, 5}, {5, 0}, {0, 0}}) {
      Trial trial(m, n, 3, Layout::rows, Layout::rows, false, random);
      CHECK(trial.same_bits(trial.run(3, edge)));
    }
  });
}

TEST_CASE("not a number and infinity go where the reference has them") {
  with_every_kernel([] {
    std::mt19937 random(7);
    Trial trial(40, 50, 60, Layout::rows, Layout::columns, true, random);
    trial.a.data[5 * trial.a.view.row_stride + 7] = std::numeric_limits<float>::quiet_NaN();
    trial.a.data[9 * trial.a.view.row_stride + 7] = std::numeric_limits<float>::infinity();
    trial.b.data[3 * trial.b.view.column_stride + 8] = -std::numeric_limits<float>::infinity();
    trial.refer();
    const std::vector<float> c = trial.run(2);
    size_t unusual = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      CHECK(std::isnan(c[i]) == std::isnan(trial.expected[i]));
      if (!std::isnan(c[i])) CHECK(c[i] == trial.expected[i]);
      if (!std::isfinite(c[i])) ++unusual;
    }
    CHECK(unusual >= 50 + 50 + 38);
  });
}

// Counts what its edge is told of, and looks whether it is final.
struct Watched {
  const Trial* trial;
  const std::vector<float>* c;
  std::vector<int> seen;
  bool final = true;

  static void finish(void* const* parameters, long first_row, long end_row, long first_column,
                     long end_column) {
    auto& self = *static_cast<Watched*>(parameters[0]);
    const int64_t stride = self.trial->gemm.c_row_stride;
    for (long i = first_row; i < end_row; ++i) {
      for (long j = first_column; j < end_column; ++j) {
        const size_t at = i * stride + j;
        ++self.seen[at];
        if ((*self.c)[at] != self.trial->expected[at]) self.final = false;
      }
    }
  }
};

TEST_CASE("an edge sees every element once, when it is final") {
  with_every_kernel([] {
    std::mt19937 random(8);
    for (const auto& [m, n, k] : {std::tuple{7, 5, 3},
                                  {230, 170, 500},
                                  {600, 65, 400},
                                  {9, 3300, 2},
                                  {30, 40, 0},
                                  {16, 700, 40},
                                  {3, 100, 10}}) {
      for (const Layout of_a : kLayouts) {
        CAPTURE(m);
        CAPTURE(n);
        Trial trial(m, n, k, of_a, Layout::rows, true, random);
        for (int threads = 1; threads <= 3; ++threads) {
          std::vector<float> c;
          Watched watched{&trial, &c, std::vector<int>(trial.before.size()), true};
          void* parameters[] = {&watched};
          trial.run(threads, {.finish = Watched::finish, .parameters = parameters}, &c);
          CHECK(watched.final);
          for (int64_t at = 0; at < m * trial.gemm.c_row_stride; ++at)
            if (watched.seen[at] != (at % trial.gemm.c_row_stride < n ? 1 : 0))
              FAIL_CHECK("element " << at << " was seen " << watched.seen[at] << " times");
        }
      }
    }
  });
}

TEST_CASE("products have the same bits with a panel, wherever its parts were packed") {
  std::mt19937 random(8);
  with_every_kernel([&] {
    for (const auto& [m, n, k] : {std::tuple{40, 97, 5},
                                  {33, 131, 40},
                                  {150, 100, 700},
                                  {35, 400, 801},
                                  {7, 200, 30},
                                  {60, 65, 20},
                                  {130, 129, 1}})
      for (const Layout of_a : kLayouts)
        for (const Layout of_b : {Layout::rows, Layout::columns, Layout::neither}) {
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          CAPTURE(static_cast<int>(of_b));
          Trial trial(m, n, k, of_a, of_b, k % 2 == 0, random);
          const Packed packed(trial.gemm);
          trial.gemm.panel = packed.panel.packed;
          for (int threads = 1; threads <= 3; ++threads) CHECK(trial.agrees(threads));
        }
  });
}

// Two pack for themselves, three for all.
TEST_CASE("threads take turns, and meet only between phases") {
  std::mt19937 random(9);
  for (const int threads : {2, 3})
    for (const auto& [m, n] : {std::pair{150, 220}, {320, 110}, {40, 30}}) {
      Trial trial(m, n, 410, Layout::columns, Layout::rows, false, random);
      std::vector<float> c = trial.before;
      trial.gemm.c = c.data();
      trial.gemm.threads = threads;
      const int phases = gemm_phases(trial.gemm);
      std::vector<Turns> turns(phases);
      std::vector<std::byte> shared(gemm_shared_bytes(trial.gemm));
      std::barrier meeting(threads);
      const auto part = [&](int thread) {
        std::vector<std::byte> workspace(gemm_workspace_bytes(trial.gemm));
        for (int phase = 0; phase < phases; ++phase) {
          gemm(trial.gemm, {phase, thread, &turns[phase], shared.data(), workspace.data()});
          meeting.arrive_and_wait();
        }
      };
      std::vector<std::thread> others;
      for (int thread = 1; thread < threads; ++thread) others.emplace_back(part, thread);
      part(0);
      for (std::thread& other : others) other.join();
      CHECK(trial.same_bits(c));
    }
}

TEST_CASE("a long sum has several rounds") {
  std::mt19937 random(11);
  Trial trial(33, 97, 125'000, Layout::rows, Layout::rows, true, random);
  for (const int threads : {2, 3}) {
    CHECK(trial.agrees(threads));
    CHECK(gemm_phases(trial.gemm) > (threads == 2 ? 1 : 2));
  }
}

}  // namespace
}  // namespace tutti
