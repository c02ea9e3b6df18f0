#include "compile/program/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

constexpr int64_t kLine = 64;

int64_t lines_up(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

MemoryPlan plan_memory(std::span<const Lifetime> lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  MemoryPlan plan{.offsets = std::vector<int64_t>(lifetimes.size()), .bytes = 0};
  std::vector<size_t> placed;  // by offset
  for (const size_t next : order) {
    const Lifetime& its = lifetimes[next];
    // The lowest gap between those that live when it does.
    int64_t offset = 0;
    for (const size_t other : placed) {
      const Lifetime& there = lifetimes[other];
      if (there.last < its.first || its.last < there.first) continue;
      if (offset + its.bytes <= plan.offsets[other]) break;
      offset = std::max(offset, lines_up(plan.offsets[other] + there.bytes));
    }
    plan.offsets[next] = offset;
    plan.bytes = std::max(plan.bytes, lines_up(offset + its.bytes));
    const auto place = std::ranges::upper_bound(placed, offset, {},
                                                [&](size_t other) { return plan.offsets[other]; });
    placed.insert(place, next);
  }
  return plan;
}

}  // namespace tutti
