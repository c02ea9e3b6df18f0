#include "compile/program/memory_plan.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/philox.h"

using namespace tutti;

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
