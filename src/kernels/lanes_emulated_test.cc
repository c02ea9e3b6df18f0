// Kernels of sixteen lanes as AVX-512 has them, one vector and its own tiles, on processors that
// have none: with emulated vectors they have the bits of those that this processor runs.
#define HIGHWAY_HWY_FOREACH_TARGET_H_  // they are compiled for one kind of vectors alone
#include "kernels/simd_targets.h"
// What it says comes before highway.h.
#include <hwy/highway.h>

#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/emulated_vectors_test.h"
#include "kernels/kernels_fixture_test.h"
// Only what is compiled for each kind of vectors; the rest is in the library.
#undef HWY_ONCE
#define HWY_ONCE 0
#include "kernels/attention.cc"       // NOLINT(bugprone-suspicious-include)
#include "kernels/attention_grad.cc"  // NOLINT(bugprone-suspicious-include)
#include "kernels/cross_entropy.cc"   // NOLINT(bugprone-suspicious-include)
#include "kernels/layer_norm.cc"      // NOLINT(bugprone-suspicious-include)
#include "kernels/reduce.cc"          // NOLINT(bugprone-suspicious-include)
// What is tested is there by now.
#include <doctest/doctest.h>

using namespace tutti;

namespace {

ConstHeads seen(const Floats& all, int64_t heads, int64_t times, int64_t size) {
  return {all.data(), heads * times * size, size, heads * size};
}
Heads made(Floats& all, int64_t heads, int64_t times, int64_t size) {
  return {all.data(), heads * times * size, size, heads * size};
}

void check_attention(const AttentionShape& s) {
  CAPTURE(s.queries);
  CAPTURE(s.head_size);
  const int64_t wide = s.batch * s.query_heads * s.queries * s.head_size;
  const int64_t deep = s.batch * s.kv_heads * s.keys * s.head_size;
  const Floats q = random_floats(wide, 1);
  const Floats k = random_floats(deep, 2);
  const Floats v = random_floats(deep, 3);
  const Floats dout = random_floats(wide, 4);
  const auto rows = [&](auto& all) { return made(all, s.query_heads, s.queries, s.head_size); };
  const auto keys = [&](auto& all) { return made(all, s.kv_heads, s.keys, s.head_size); };
  const auto rows_of = [&](auto& all) { return seen(all, s.query_heads, s.queries, s.head_size); };
  const auto keys_of = [&](auto& all) { return seen(all, s.kv_heads, s.keys, s.head_size); };
  struct Results {
    Floats out, lse, dq, dk, dv;
  };
  Results results[2];
  for (const bool emulated : {false, true}) {
    Results& r = results[emulated ? 1 : 0];
    r.out.resize(q.size());
    r.lse.resize(static_cast<size_t>(s.batch * s.query_heads * s.queries));
    r.dq.resize(q.size());
    r.dk.resize(k.size());
    r.dv.resize(k.size());
    std::vector<std::byte> room(
        std::max(attention_workspace_bytes(s), attention_grad_workspace_bytes(s)), std::byte{0xff});
    const Attention forward{s, rows_of(q), keys_of(k), keys_of(v), rows(r.out), r.lse.data()};
    const AttentionGrad grad{s,          rows_of(dout),  rows_of(q),   keys_of(k),
                             keys_of(v), rows_of(r.out), r.lse.data(), rows(r.dq),
                             keys(r.dk), keys(r.dv)};
    Turns forth;
    Turns back;
    (emulated ? N_EMULATED::attend_heads : attention)(forward, forth, room.data());
    (emulated ? N_EMULATED::grad_heads : attention_grad)(grad, back, room.data());
  }
  CHECK(same_bits(results[0].out, results[1].out));
  CHECK(same_bits(results[0].lse, results[1].lse));
  CHECK(same_bits(results[0].dq, results[1].dq));
  CHECK(same_bits(results[0].dk, results[1].dk));
  CHECK(same_bits(results[0].dv, results[1].dv));
}

}  // namespace

TEST_CASE("attention with vectors of sixteen has the bits of what this processor runs") {
  static_assert(N_EMULATED::kParts == 1);
  check_attention({1, 1, 1, 1, 1, 1, 1.0F, true});
  check_attention({1, 2, 2, 5, 5, 3, 0.5F, true});
  check_attention({2, 2, 1, 17, 17, 16, 0.25F, true});
  check_attention({1, 2, 1, 97, 97, 64, 0.125F, true});
  check_attention({1, 2, 2, 131, 131, 20, 0.2F, false});
  check_attention({2, 6, 2, 40, 113, 33, 0.2F, true});
}

TEST_CASE("norms with vectors of sixteen have the bits of what this processor runs") {
  for (const int64_t width : {1, 15, 16, 17, 100}) {
    CAPTURE(width);
    constexpr int64_t kRows = 70;  // more than a group
    const Floats x = random_floats(kRows * width, 1);
    const Floats dy = random_floats(kRows * width, 2);
    const Floats scale = random_floats(width, 3);
    const Floats shift = random_floats(width, 4);
    for (const bool layer : {false, true}) {
      Floats y[2], dx[2], mean(kRows), inverse(kRows), sums[2];
      for (const size_t i : {0, 1}) {
        y[i].resize(x.size());
        dx[i].resize(x.size());
        sums[i].resize(layer_norm_grad_floats(kRows, width));
        const LayerNorm norm{kRows,    width,       x.data(),    scale.data(),  shift.data(),
                             0.00001F, y[i].data(), mean.data(), inverse.data()};
        const LayerNormGrad grad{kRows,        width,       dy.data(),      x.data(),
                                 scale.data(), mean.data(), inverse.data(), dx[i].data(),
                                 nullptr,      nullptr,     sums[i].data()};
        if (i == 0) {
          (layer ? layer_norm : rms_norm)(norm, 0, 1);
          (layer ? layer_norm_grad_rows : rms_norm_grad_rows)(grad, 0, 1);
        } else {
          (layer ? N_EMULATED::layer_norm_rows : N_EMULATED::rms_norm_rows)(norm, {0, kRows});
          (layer ? N_EMULATED::layer_norm_groups : N_EMULATED::rms_norm_groups)(
              grad, {0, row_groups(kRows)});
        }
      }
      CHECK(same_bits(y[0], y[1]));
      CHECK(same_bits(dx[0], dx[1]));
      CHECK(same_bits(sums[0], sums[1]));
    }
  }
}

TEST_CASE("losses and sums with vectors of sixteen have the bits of what this processor runs") {
  for (const int64_t width : {1, 16, 65, 5001}) {
    CAPTURE(width);
    constexpr int64_t kRows = 9;
    const Floats logits = random_floats(kRows * width, 1, 3);
    const Floats dloss = random_floats(kRows, 2);
    const std::vector<int32_t> targets(kRows, 0);
    Floats grad[2] = {logits, logits}, loss[2] = {Floats(kRows), Floats(kRows)};
    Floats chunks[2], squares[2], rows[2];
    for (const size_t i : {0, 1}) {
      const CrossEntropy given{kRows,          width,        grad[i].data(), width,
                               targets.data(), dloss.data(), loss[i].data()};
      const auto all = static_cast<int64_t>(logits.size());
      chunks[i].resize(static_cast<size_t>(reduce_chunks(all)));
      squares[i] = chunks[i];
      rows[i].resize(static_cast<size_t>(width));
      const SumRows sum{kRows, width, logits.data(), width, nullptr, rows[i].data()};
      const Part whole{0, reduce_chunks(all)};
      if (i == 0) {
        CHECK_FALSE(cross_entropy(given, 0, 1).has_value());
        sum_chunks(logits.data(), all, chunks[i].data(), 0, 1);
        sum_square_chunks(logits.data(), all, squares[i].data(), 0, 1);
        sum_rows(sum, 0, 1);
      } else {
        N_EMULATED::cross_entropy_rows(given, {0, kRows});
        N_EMULATED::plain_chunks(logits.data(), all, chunks[i].data(), whole);
        N_EMULATED::square_chunks(logits.data(), all, squares[i].data(), whole);
        N_EMULATED::sum_row_groups(sum, {0, row_groups(kRows)});
      }
    }
    CHECK(same_bits(grad[0], grad[1]));
    CHECK(same_bits(loss[0], loss[1]));
    CHECK(same_bits(chunks[0], chunks[1]));
    CHECK(same_bits(squares[0], squares[1]));
    CHECK(same_bits(rows[0], rows[1]));
  }
}
