// The one order in which anything is reduced: a fixed binary tree over lanes.
//
// Lane i is the i-th summand. The node of level k at index j covers lanes j·2^k to (j+1)·2^k - 1;
// lanes past the last do not exist, and a node whose right half is empty is its left half. So eight
// lanes are ((01)(23))((45)(67)), and five ((01)(23))4. Whoever holds several lanes may join those
// of a whole node beforehand, and nobody can tell: the bits of the result depend on the lanes
// alone, never on who held which.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace tutti {

struct LaneRange {
  uint32_t first = 0;
  uint32_t count = 1;
  bool operator==(const LaneRange&) const = default;
};

constexpr uint32_t kMostLanes = 4096;

// The fewest whole nodes that cover these lanes, ascending.
std::vector<LaneRange> whole_nodes(LaneRange lanes, uint32_t all_lanes);

// How `count` lanes are dealt to holders, as evenly as possible: the i-th one's share.
LaneRange share_of_lanes(uint32_t all_lanes, uint32_t holders, uint32_t holder);

// A program for the tree when its summands are whole nodes.
class FoldTree {
 public:
  // Joins operand `left` with `right` into a new operand; operands are numbered on, sources first.
  struct Join {
    uint16_t left;
    uint16_t right;
  };

  // Every lane in a source of its own.
  static FoldTree plain(uint32_t lanes);
  // Refuses sources that are no whole nodes, or leave a lane out, or hold it twice.
  static Result<FoldTree> over(uint32_t all_lanes, std::span<const LaneRange> sources);

  uint32_t sources() const { return sources_; }
  // The last one's result is the whole; without any it is source 0.
  std::span<const Join> joins() const { return joins_; }
  // Whether this is plain(sources()): kernels have it unrolled.
  bool is_plain() const { return plain_; }

 private:
  uint16_t build(uint32_t all_lanes, std::span<const LaneRange> sources, uint32_t first,
                 uint32_t size, size_t& next);

  uint32_t sources_ = 0;
  bool plain_ = false;
  std::vector<Join> joins_;
};

}  // namespace tutti
