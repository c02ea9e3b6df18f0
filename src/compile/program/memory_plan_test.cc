#include "compile/program/memory_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>

#include "base/philox.h"
#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"

using namespace tutti;

namespace {

// What is planned, without types, up to the kernels' own text.
std::string planned(std::string_view text) {
  const auto program = program_after(optimize(graph_of(text)), "memory-plan");
  REQUIRE_MESSAGE(program.has_value(), program.error().text());
  const std::string all = program->text();
  return std::regex_replace(all.substr(0, all.find("kernel ")), std::regex(R"(:f32\[[^\]]*\])"),
                            "");
}

}  // namespace

TEST_CASE("buffers that do not live at the same time share memory") {
  const std::vector<Lifetime> one_after_the_other = {{100, 0, 1}, {100, 2, 3}, {100, 4, 5}};
  CHECK(plan_memory(one_after_the_other).bytes == 128);
  const std::vector<Lifetime> at_once = {{100, 0, 2}, {100, 1, 3}, {64, 2, 3}};
  const MemoryPlan plan = plan_memory(at_once);
  CHECK(plan.offsets == std::vector<int64_t>{0, 128, 256});
  CHECK(plan.bytes == 320);
}

TEST_CASE("no two buffers that live at the same time overlap, whatever their sizes") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<Lifetime> lifetimes;
    int64_t least = 0;
    for (uint32_t i = 0; i < 40; ++i) {
      const uint32_t first = random_bits(seed, 0, i) % 50;
      lifetimes.push_back({.bytes = random_bits(seed, 1, i) % 5000 + 1,
                           .first = first,
                           .last = first + random_bits(seed, 2, i) % 10});
    }
    for (uint32_t step = 0; step < 60; ++step) {
      int64_t live = 0;
      for (const Lifetime& its : lifetimes)
        if (its.first <= step && step <= its.last) live += its.bytes;
      least = std::max(least, live);
    }
    const MemoryPlan plan = plan_memory(lifetimes);
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      CHECK(plan.offsets[i] % 64 == 0);
      CHECK(plan.offsets[i] + lifetimes[i].bytes <= plan.bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool together =
            lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
        const bool apart = plan.offsets[i] + lifetimes[i].bytes <= plan.offsets[j] ||
                           plan.offsets[j] + lifetimes[j].bytes <= plan.offsets[i];
        CHECK((!together || apart));
      }
    }
    CHECK(plan.bytes < 2 * least);
  }
}

TEST_CASE("products one after the other take turns in two places, and the last has its own") {
  CHECK(planned(R"(graph g(%x: f32[m=2, k=64], %w: f32[k=64, n=64]) {
    %a = matmul(%x, %w) {over=["k"]} @"m.py:1"
    %b = reshape(%a) : f32[m=2, k=64]
    %c = matmul(%b, %w) {over=["k"]} @"m.py:2"
    %d = reshape(%c) : f32[m=2, k=64]
    %e = matmul(%d, %w) {over=["k"]} @"m.py:3"
    %f = reshape(%e) : f32[m=2, k=64]
    %g = matmul(%f, %w) {over=["k"]} @"m.py:4"
    return %g as "y"
  })") == R"(program, arena of 1024 bytes
  gemm {accumulate=false}(x, w) -> arena+0 @m.py:1
  gemm {accumulate=false}(arena+0, w) -> arena+512 @m.py:2
  gemm {accumulate=false}(arena+512, w) -> arena+0 @m.py:3
  gemm {accumulate=false}(arena+0, w) -> y' @m.py:4
)");
}

TEST_CASE("a next value is made in the state's place, or put there when the old one was read") {
  CHECK(planned(R"(graph g(%w: f32[n=2] state, %x: f32[n=2]) {
    %a = add(%w, %x) @"m.py:1"
    return %a as "w"
  })") == R"(program, arena of 0 bytes
 commit:
  k0 (w, x) -> w' @m.py:1
)");
  CHECK(planned(R"(graph g(%w: f32[n=2, k=2] state, %x: f32[n=2, k=2]) {
    %a = add(%w, %x) @"m.py:1"
    %b = reshape(%w) : f32[k=2, m=2]
    %c = matmul(%a, %b) {over=["k"]} @"m.py:2"
    return %a as "w", %c as "c"
  })") == R"(program, arena of 64 bytes
  k0 (w, x) -> arena+0 @m.py:1
  gemm {accumulate=false}(arena+0, w) -> c' @m.py:2
 commit:
  k1 (arena+0) -> w'
)");
}
