// For tests: random layouts, and tensors in them, made the plain way.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "fabric/plan.h"

namespace tutti {

class RandomLayouts {
 public:
  explicit RandomLayouts(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t limit) { return random_() % limit; }

  std::vector<uint64_t> shape() {
    std::vector<uint64_t> shape(below(4));
    for (uint64_t& size : shape) size = below(12) == 0 ? 0 : 1 + below(13);
    return shape;
  }

  // Over some of so many ranks, in any order.
  Mesh mesh(uint32_t ranks) {
    std::vector<MeshAxis> axes;
    uint32_t size = 1;
    for (const char* name : {"a", "b", "c"}) {
      const auto most = std::min<uint64_t>(ranks / size, 4);
      axes.push_back({name, static_cast<uint32_t>(1 + below(most))});
      size *= axes.back().size;
    }
    std::vector<uint32_t> all(ranks);
    std::iota(all.begin(), all.end(), 0U);
    std::ranges::shuffle(all, random_);
    all.resize(size);
    return *Mesh::make(axes, all);
  }

  Layout layout(uint32_t ranks, const std::vector<uint64_t>& shape, bool may_be_partial = true) {
    const Mesh on = mesh(ranks);
    LayoutOptions options{.shape = shape, .op = static_cast<ReduceOp>(below(4))};
    for (const MeshAxis& axis : on.axes()) {
      const uint64_t role = below(shape.size() + 2);
      if (role < shape.size()) {
        const auto known = std::ranges::find(options.shards, role, &Sharding::dimension);
        if (known != options.shards.end())
          known->axes.insert(known->axes.begin() + static_cast<int64_t>(below(2)), axis.name);
        else
          options.shards.push_back({.dimension = static_cast<uint32_t>(role), .axes = {axis.name}});
      } else if (role == shape.size() && may_be_partial) {
        options.partial.push_back(axis.name);
      }
    }
    for (Sharding& sharding : options.shards) {
      const uint64_t size = shape[sharding.dimension];
      if (below(3) == 0) sharding.chunk = 1 + below(5);
      if (sharding.chunk != 1 || below(3) != 0) continue;
      uint64_t pieces = 1;
      for (const MeshAxis& axis : on.axes())
        if (std::ranges::find(sharding.axes, axis.name) != sharding.axes.end()) pieces *= axis.size;
      sharding.bounds = {0, size};
      while (sharding.bounds.size() <= pieces) sharding.bounds.push_back(below(size + 1));
      std::ranges::sort(sharding.bounds);
    }
    auto made = Layout::make(on, options);
    REQUIRE_MESSAGE(made.has_value(), made.error().text());
    return *made;
  }

 private:
  std::mt19937_64 random_;
};

// Calls visit(index in the tensor, index in the box) for all elements of a box.
template <class Visit>
void for_each_element(const Layout& layout, const Box& box, Visit&& visit) {
  const uint64_t elements = box.elements();
  for (uint64_t local = 0; local < elements; ++local) {
    uint64_t rest = local;
    uint64_t global = 0;
    uint64_t stride = 1;
    for (uint32_t d = box.dimensions; d-- > 0;) {
      global += (box.begin[d] + rest % box.extent[d]) * stride;
      rest /= box.extent[d];
      stride *= layout.shape()[d];
    }
    visit(global, local);
  }
}

// A summand of an element; of one lane it is the element.
inline float lane_value(uint64_t tensor, uint32_t lane, uint64_t element) {
  return static_cast<float>((tensor * 7919 + lane * 104'729 + element * 31) % 1009) * 0.37F - 150;
}

// The plain tree over all lanes.
inline float whole_value(const Layout& from, uint64_t tensor, uint64_t element) {
  std::vector<float> lanes;
  for (uint32_t lane = 0; lane < from.lanes(); ++lane)
    lanes.push_back(lane_value(tensor, lane, element));
  const auto join = [&](float a, float b) {
    return from.op() == ReduceOp::max   ? std::max(a, b)
           : from.op() == ReduceOp::min ? std::min(a, b)
                                        : a + b;
  };
  for (size_t step = 1; step < lanes.size(); step *= 2)
    for (size_t lane = 0; lane + step < lanes.size(); lane += 2 * step)
      lanes[lane] = join(lanes[lane], lanes[lane + step]);
  const bool divide = from.op() == ReduceOp::mean && lanes.size() > 1;
  return divide ? lanes[0] / static_cast<float>(lanes.size()) : lanes[0];
}

// What a rank holds of a tensor in its source's layout, and what it should in the target's.
inline std::vector<float> held_before(const Layout& from, uint64_t tensor, uint32_t rank) {
  const auto place = from.mesh().place_of(rank);
  if (!place) return {};
  const Layout::Holding holding = from.holding(*place);
  std::vector<float> held(from.box(holding).elements());
  for_each_element(from, from.box(holding), [&](uint64_t global, uint64_t local) {
    held[local] = lane_value(tensor, holding.lane, global);
  });
  return held;
}

inline std::vector<float> held_after(const Layout& from, const Layout& to, uint64_t tensor,
                                     uint32_t rank) {
  const auto place = to.mesh().place_of(rank);
  if (!place) return {};
  const Layout::Holding holding = to.holding(*place);
  const bool by_lane = from.lanes() == to.lanes() && from.op() == to.op();
  std::vector<float> held(to.box(holding).elements());
  for_each_element(to, to.box(holding), [&](uint64_t global, uint64_t local) {
    if (by_lane)
      held[local] = lane_value(tensor, holding.lane, global);
    else if (holding.lane == 0 || to.op() != ReduceOp::sum)
      held[local] = whole_value(from, tensor, global);
  });
  return held;
}

}  // namespace tutti
