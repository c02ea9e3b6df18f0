#include "cluster/tree_shape.h"

#include <algorithm>

namespace tutti {

uint32_t TreeShape::depth(NodeId node) const {
  uint32_t depth = 0;
  for (; node != kHead; node = parent(node)) ++depth;
  return depth;
}

bool TreeShape::covers(NodeId above, NodeId node) const {
  while (node > above) node = parent(node);
  return node == above;
}

RangeSet TreeShape::below(NodeId node, NodeId last) const {
  RangeSet set;
  uint64_t first = node;
  uint64_t end = node;  // of one level
  while (first <= last) {
    set.add(static_cast<NodeId>(first), static_cast<NodeId>(std::min<uint64_t>(end, last)));
    first = first * fan_out + 1;
    end = end * fan_out + fan_out;
  }
  return set;
}

std::vector<NodeId> TreeShape::places_for(NodeId node) const {
  std::vector<NodeId> places;
  NodeId top = node;
  for (NodeId above = node; above != kHead;) {
    top = above;
    above = parent(above);
    places.push_back(above);
  }
  for (NodeId stand_in = 1; stand_in <= std::min(kStandIns, top - 1); ++stand_in)
    places.push_back(stand_in);
  return places;
}

}  // namespace tutti
