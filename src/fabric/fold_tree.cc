#include "fabric/fold_tree.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"

namespace tutti {

namespace {

// Lanes of the node of this size at `first` that exist.
uint32_t existing(uint32_t all_lanes, uint32_t first, uint32_t size) {
  return std::min(size, all_lanes - first);
}

// The largest node that begins at `first` and ends by `end`.
uint32_t largest_node(uint32_t all_lanes, uint32_t first, uint32_t end) {
  const uint32_t whole = std::bit_ceil(all_lanes);
  uint32_t size = first == 0 ? whole : 1U << std::countr_zero(first);
  while (first + existing(all_lanes, first, size) > end) size /= 2;
  return existing(all_lanes, first, size);
}

}  // namespace

std::vector<LaneRange> whole_nodes(LaneRange lanes, uint32_t all_lanes) {
  std::vector<LaneRange> nodes;
  const uint32_t end = lanes.first + lanes.count;
  for (uint32_t first = lanes.first; first < end;) {
    const uint32_t count = largest_node(all_lanes, first, end);
    nodes.push_back({first, count});
    first += count;
  }
  return nodes;
}

LaneRange share_of_lanes(uint32_t all_lanes, uint32_t holders, uint32_t holder) {
  const auto begin = [&](uint64_t index) {
    return static_cast<uint32_t>(index * all_lanes / holders);
  };
  return {begin(holder), begin(holder + 1) - begin(holder)};
}

FoldTree FoldTree::plain(uint32_t lanes) {
  std::vector<LaneRange> sources(lanes);
  for (uint32_t lane = 0; lane < lanes; ++lane) sources[lane] = {lane, 1};
  auto tree = over(lanes, sources);
  TUTTI_ASSERT(tree.has_value(), "every lane by itself is a tree");
  return *std::move(tree);
}

Result<FoldTree> FoldTree::over(uint32_t all_lanes, std::span<const LaneRange> sources) {
  if (all_lanes == 0 || all_lanes > kMostLanes)
    return fail(Code::invalid, "a reduction has 1 to {} lanes, not {}", kMostLanes, all_lanes);
  uint32_t next_lane = 0;
  for (const LaneRange& source : sources) {
    if (source.first != next_lane || source.count == 0 || source.count > all_lanes - source.first)
      return fail(Code::invalid, "lanes {} to {} come where lane {} of {} should", source.first,
                  source.first + source.count, next_lane, all_lanes);
    if (whole_nodes(source, all_lanes).size() != 1)
      return fail(Code::invalid,
                  "lanes {} to {} of {} are no node of the tree, so they cannot be joined "
                  "beforehand; give them as {} parts",
                  source.first, source.first + source.count - 1, all_lanes,
                  whole_nodes(source, all_lanes).size());
    next_lane += source.count;
  }
  if (next_lane != all_lanes)
    return fail(Code::invalid, "nobody holds lanes {} to {}", next_lane, all_lanes - 1);
  FoldTree tree;
  tree.sources_ = static_cast<uint32_t>(sources.size());
  tree.plain_ = tree.sources_ == all_lanes;
  tree.joins_.reserve(sources.size());
  size_t next = 0;
  tree.build(all_lanes, sources, 0, std::bit_ceil(all_lanes), next);
  return tree;
}

// The operand that holds the node; sources are met in order.
uint16_t FoldTree::build(uint32_t all_lanes, std::span<const LaneRange> sources, uint32_t first,
                         uint32_t size, size_t& next) {
  if (sources[next].count == existing(all_lanes, first, size)) return static_cast<uint16_t>(next++);
  const uint32_t half = size / 2;
  const uint16_t left = build(all_lanes, sources, first, half, next);
  if (first + half >= all_lanes) return left;
  const uint16_t right = build(all_lanes, sources, first + half, half, next);
  joins_.push_back({left, right});
  return static_cast<uint16_t>(sources_ + joins_.size() - 1);
}

}  // namespace tutti
