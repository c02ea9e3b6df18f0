// What a host joins of a reduction before it speaks with other hosts: the lanes of its ranks become
// the fewest whole nodes of the tree, and only these travel. Nobody can tell from the result.
#pragma once

#include <span>
#include <vector>

#include "fabric/fold_tree.h"

namespace tutti {

struct NodeFold {
  LaneRange node;
  FoldTree tree;                  // over its own lanes
  std::vector<uint32_t> sources;  // which of those given, in the order of the tree
};

// Sources are whole nodes, in any order; lanes that are missing are held by other hosts.
Result<std::vector<NodeFold>> fold_into_nodes(uint32_t all_lanes,
                                              std::span<const LaneRange> sources);

}  // namespace tutti
