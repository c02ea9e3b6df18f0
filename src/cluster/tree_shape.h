// The shape of the agents' tree: arithmetic, known to everyone, agreed on by nobody.
//
// Nodes are numbered by the head, which is node 0; node n hangs below (n - 1) / fan_out. A node
// whose parent is away hangs below the nearest ancestor that is not, and, when even the head is
// away, below the lowest of its stand-ins: nodes 1 to kStandIns. So everybody always looks for a
// smaller number, and there are no cycles.
#pragma once

#include <vector>

#include "base/range_set.h"

namespace tutti {

using NodeId = uint32_t;
constexpr NodeId kHead = 0;
// Nodes that keep the tree in one piece while the head is away; each lengthens every agent's list.
constexpr NodeId kStandIns = 3;
// Wide, since what travels is small: 32 sends take as long as one hop more would.
constexpr uint32_t kUsualFanOut = 32;

struct TreeShape {
  uint32_t fan_out = kUsualFanOut;

  NodeId parent(NodeId node) const { return (node - 1) / fan_out; }
  uint32_t depth(NodeId node) const;
  // Whether `above` is the node itself or an ancestor of it. The head is above everyone.
  bool covers(NodeId above, NodeId node) const;
  // The node and all below it among the numbers up to `last`.
  RangeSet below(NodeId node, NodeId last) const;
  // Where the node may hang, best first: its ancestors up to the head, then smaller stand-ins.
  std::vector<NodeId> places_for(NodeId node) const;
};

}  // namespace tutti
