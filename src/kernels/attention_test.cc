#include "kernels/attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "kernels/kernels_fixture_test.h"

namespace tutti {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One tensor, in [batch][time][head][size], as projections write it, or [batch][head][time][size].
struct HeadFloats {
  int64_t heads, times, size;
  bool time_first;
  Floats all;

  HeadFloats(int64_t batch, int64_t heads, int64_t times, int64_t size, bool time_first)
      : heads(heads),
        times(times),
        size(size),
        time_first(time_first),
        all(static_cast<size_t>(batch * heads * times * size), kNaN) {}
  HeadFloats& fill(unsigned seed, float deviation) {
    all = random_floats(static_cast<int64_t>(all.size()), seed, deviation);
    return *this;
  }
  template <class T>
  HeadsOf<T> view() {
    const int64_t per_batch = heads * times * size;
    return time_first ? HeadsOf<T>{all.data(), per_batch, size, heads * size}
                      : HeadsOf<T>{all.data(), per_batch, times * size, size};
  }
};

struct Problem {
  AttentionShape shape;
  HeadFloats q, k, v, out, dout, dq, dk, dv;
  Floats lse;

  explicit Problem(const AttentionShape& s, float deviation = 1, bool time_first = true)
      : shape(s),
        q(s.batch, s.query_heads, s.queries, s.head_size, time_first),
        k(s.batch, s.kv_heads, s.keys, s.head_size, time_first),
        v(k),
        out(q),
        dout(q),
        dq(q),
        dk(k),
        dv(k),
        lse(static_cast<size_t>(s.batch * s.query_heads * s.queries), kNaN) {
    q.fill(1, deviation);
    k.fill(2, deviation);
    v.fill(3, 1);
    dout.fill(4, 1);
  }
  Attention forward() {
    return {shape,
            q.view<const float>(),
            k.view<const float>(),
            v.view<const float>(),
            out.view<float>(),
            lse.data()};
  }
  AttentionGrad grad() {
    return {shape,
            dout.view<const float>(),
            q.view<const float>(),
            k.view<const float>(),
            v.view<const float>(),
            out.view<const float>(),
            lse.data(),
            dq.view<float>(),
            dk.view<float>(),
            dv.view<float>()};
  }
};

void run(Problem& p, int phase, int thread, int threads) {
  // What is left in a workspace must not matter.
  const size_t bytes =
      phase == 0 ? attention_workspace_bytes(p.shape) : attention_grad_workspace_bytes(p.shape);
  std::vector<std::byte> workspace(bytes, std::byte{0xff});
  Turns turns(thread, threads);
  if (phase == 0) attention(p.forward(), turns, workspace.data());
  if (phase == 1) attention_grad(p.grad(), turns, workspace.data());
}

const AttentionShape kShapes[] = {
    {1, 1, 1, 1, 1, 1, 1.0F, true},      {1, 2, 2, 5, 5, 3, 0.5F, true},
    {2, 2, 1, 17, 17, 16, 0.25F, true},  {1, 3, 3, 96, 96, 8, 0.3F, true},
    {1, 2, 1, 97, 97, 64, 0.125F, true}, {1, 2, 2, 131, 131, 20, 0.2F, false},
    {2, 6, 2, 40, 113, 33, 0.2F, true},  {1, 8, 2, 1, 210, 32, 0.2F, true},
    {1, 2, 2, 7, 200, 17, 0.2F, false},  {1, 1, 1, 200, 50, 16, 0.25F, false},
};

TEST_CASE("attention and its gradients have the same bits, whoever computes them") {
  for (const AttentionShape& shape : kShapes) {
    CAPTURE(shape.queries);
    Problem first(shape);
    run(first, 0, 0, 1);
    run(first, 1, 0, 1);
    every_way(
        2, [&] { return Problem(shape); }, run,
        [&](const Problem& p) {
          CHECK(same_bits(p.out.all, first.out.all));
          CHECK(same_bits(p.lse, first.lse));
          CHECK(same_bits(p.dq.all, first.dq.all));
          CHECK(same_bits(p.dk.all, first.dk.all));
          CHECK(same_bits(p.dv.all, first.dv.all));
        });
  }
}

TEST_CASE("attention is that of the formula in double precision, up to rounding") {
  for (const AttentionShape& shape : kShapes)
    for (const float deviation : {1.0F, 5.0F})
      for (const bool time_first : {true, false}) {
        CAPTURE(shape.queries);
        CAPTURE(shape.keys);
        CAPTURE(deviation);
        Problem p(shape, deviation, time_first);
        Problem exact = p;
        run(p, 0, 0, 1);
        attention_reference(exact.forward());
        // Rounding of scores of a hundred or so is what the exponentials see.
        const double tolerance = 2e-6 * deviation * deviation;
        CHECK(relative_error(p.out.all, doubles(exact.out.all)) < tolerance);
        CHECK(relative_error(p.lse, doubles(exact.lse)) < 1e-6);
        run(p, 1, 0, 1);
        attention_grad_reference(exact.grad());
        CHECK(relative_error(p.dq.all, doubles(exact.dq.all)) < 2 * tolerance);
        CHECK(relative_error(p.dk.all, doubles(exact.dk.all)) < 2 * tolerance);
        CHECK(relative_error(p.dv.all, doubles(exact.dv.all)) < 2 * tolerance);
      }
}

TEST_CASE("a place has the same bits whether it comes with others or alone") {
  Problem whole({1, 4, 2, 150, 150, 24, 0.2F, true});
  run(whole, 0, 0, 1);
  for (const int64_t keys : {1, 16, 97, 150}) {
    Problem last({1, 4, 2, 1, keys, 24, 0.2F, true});
    last.k.all.assign(whole.k.all.begin(), whole.k.all.begin() + keys * 48);
    last.v.all.assign(whole.v.all.begin(), whole.v.all.begin() + keys * 48);
    const auto from = whole.q.all.begin() + (keys - 1) * 96;
    last.q.all.assign(from, from + 96);
    run(last, 0, 0, 1);
    const auto expected = whole.out.all.begin() + (keys - 1) * 96;
    CHECK(same_bits(last.out.all, Floats(expected, expected + 96)));
  }
}

TEST_CASE("places of a cache have the bits of a sequence as long as they see") {
  // Two sequences, at different places of their caches, whose rest is not a number.
  const AttentionShape cached{2, 4, 2, 3, 160, 24, 0.2F, true};
  const int64_t positions[] = {4, 110};
  const auto make = [&] {
    Problem p(cached);
    for (int64_t batch = 0; batch < 2; ++batch)
      for (int64_t key = positions[batch] + 3; key < 160; ++key)
        for (HeadFloats* each : {&p.k, &p.v})
          std::fill_n(each->all.begin() + (batch * 160 + key) * 48, 48, kNaN);
    return p;
  };
  const auto given = [&](Problem& p) {
    Attention a = p.forward();
    a.positions = positions;
    a.position_stride = 1;
    return a;
  };
  Problem exact = make();
  attention_reference(given(exact));
  every_way(
      1, make,
      [&](Problem& p, int, int thread, int threads) {
        std::vector<std::byte> workspace(attention_workspace_bytes(cached));
        Turns turns(thread, threads);
        attention(given(p), turns, workspace.data());
      },
      [&](const Problem& p) {
        CHECK(relative_error(p.out.all, doubles(exact.out.all)) < 2e-6);
        for (int64_t batch = 0; batch < 2; ++batch) {
          const int64_t keys = positions[batch] + 3;
          Problem alone({1, 4, 2, 3, keys, 24, 0.2F, true});
          const auto part = [&](const HeadFloats& all, int64_t each, int64_t count) {
            const auto from = all.all.begin() + batch * each;
            return Floats(from, from + count);
          };
          alone.k.all = part(p.k, 160 * 48, keys * 48);
          alone.v.all = part(p.v, 160 * 48, keys * 48);
          alone.q.all = part(p.q, 3 * 96, 3 * 96);
          run(alone, 0, 0, 1);
          CHECK(same_bits(alone.out.all, part(p.out, 3 * 96, 3 * 96)));
        }
      });
}

TEST_CASE("queries past the end of a cache see all of it") {
  Problem p({1, 1, 1, 4, 10, 8, 0.3F, true});
  const int64_t position = 8;
  Attention a = p.forward();
  a.positions = &position;
  Problem exact = p;
  Attention reference = exact.forward();
  reference.positions = &position;
  std::vector<std::byte> workspace(attention_workspace_bytes(p.shape));
  Turns turns;
  attention(a, turns, workspace.data());
  attention_reference(reference);
  CHECK(relative_error(p.out.all, doubles(exact.out.all)) < 2e-6);
}

TEST_CASE("large scores stay finite, and what is not a number is seen by later places alone") {
  Problem large({1, 1, 1, 120, 120, 16, 1.0F, true}, 100);
  run(large, 0, 0, 1);
  run(large, 1, 0, 1);
  for (const HeadFloats* each : {&large.out, &large.dq, &large.dk, &large.dv})
    for (const float x : each->all) CHECK(std::isfinite(x));

  every_way(
      1,
      [] {
        Problem p({1, 1, 1, 120, 120, 16, 0.25F, true});
        p.k.all[100 * 16 + 3] = kNaN;
        return p;
      },
      run,
      [](const Problem& p) {
        for (size_t i = 0; i < 120; ++i) {
          CHECK(std::isnan(p.lse[i]) == (i >= 100));
          CHECK(std::isnan(p.out.all[i * 16]) == (i >= 100));
        }
      });
}

}  // namespace
}  // namespace tutti
