// The tiles of AVX-512 on processors that have none: their rows, columns, packing and edges with
// emulated vectors of sixteen.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/emulated_vectors_test.h"
#include "kernels/gemm_kernel.h"
// In the order of gemm_targets.cc.
#include "kernels/gemm_tile.inc"
// …
#include "kernels/gemm_pack.inc"
// …
#include "kernels/gemm_thin.inc"
// …
#include "kernels/gemm_loops.inc"
// …
#include "kernels/gemm_shared.inc"
// …
#include "kernels/gemm_run.inc"
// What is tested is there by now.
#include <doctest/doctest.h>

using namespace tutti;

namespace {

constexpr std::byte kStale{0xff};

const GemmKernel& emulated() { return N_EMULATED::kGemm; }

std::vector<float> drawn_floats(int64_t count, std::mt19937& random) {
  std::vector<float> made(static_cast<size_t>(count));
  std::uniform_real_distribution<float> draw(-1, 1);
  for (float& each : made) each = draw(random);
  return made;
}

// By two or three threads, each with a workspace full of what is not a number.
void check(int64_t m, int64_t n, int64_t k, bool a_turned, bool b_turned, std::mt19937& random) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  CAPTURE(a_turned);
  CAPTURE(b_turned);
  const auto a = drawn_floats(m * k, random);
  const auto b = drawn_floats(k * n, random);
  std::vector<float> expected = drawn_floats(m * n, random);
  std::vector<float> c = expected;
  Gemm gemm{.m = m,
            .n = n,
            .k = k,
            .a = {a.data(), a_turned ? 1 : k, a_turned ? m : 1},
            .b = {b.data(), b_turned ? 1 : n, b_turned ? k : 1},
            .c = expected.data(),
            .c_row_stride = n,
            .accumulate = random() % 2 == 0,
            .edge = {},
            .threads = 2 + static_cast<int>(random() % 2)};
  gemm_reference(gemm);
  gemm.c = c.data();
  // One half of the products has B in a panel.
  std::vector<float> panel(emulated().panel_bytes(n, k) / sizeof(float) + 16, NAN);
  if (random() % 2 == 0) {
    float* packed = panel.data() + -reinterpret_cast<uintptr_t>(panel.data()) % 64 / sizeof(float);
    emulated().pack_panel({gemm.b, n, k, packed}, {0, k, 0, n});
    gemm.panel = packed;
  }
  std::vector<std::byte> shared(emulated().shared_bytes(gemm), kStale);
  for (int phase = 0; phase < emulated().phases(gemm); ++phase)
    for (int thread = 0; thread < gemm.threads; ++thread) {
      std::vector<std::byte> workspace(emulated().workspace_bytes(gemm), kStale);
      Turns turns(thread, gemm.threads);
      emulated().run(gemm, {phase, thread, &turns, shared.data(), workspace.data()});
    }
  size_t wrong = 0;
  for (size_t i = 0; i < c.size(); ++i)
    if (std::bit_cast<uint32_t>(c[i]) != std::bit_cast<uint32_t>(expected[i])) ++wrong;
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("products with vectors of sixteen have the bits of the reference, whatever remains") {
  CHECK(std::string_view(emulated().name) == "avx512");
  std::mt19937 random(1);
  for (const int64_t m : {1, 2, 7, 13, 14, 15, 29, 43, 130})
    for (const int64_t n : {1, 15, 16, 31, 33, 65, 97, 131})
      for (const int64_t k : {1, 3, 17})
        for (const bool a_turned : {false, true})
          for (const bool b_turned : {false, true}) check(m, n, k, a_turned, b_turned, random);
  // Several blocks of k, rows and columns.
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true}) {
      check(197, 70, 391, a_turned, b_turned, random);
      check(20, 3100, 5, a_turned, b_turned, random);
    }
}
