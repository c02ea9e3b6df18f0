#include "cluster/tree_shape.h"

#include <doctest/doctest.h>

namespace tutti {
namespace {

TEST_CASE("every node is below its parent and nowhere else") {
  for (const uint32_t fan_out : {1, 2, 3, 32}) {
    const TreeShape shape{fan_out};
    constexpr NodeId kLast = 500;
    for (NodeId node = 0; node <= kLast; ++node) {
      const RangeSet below = shape.below(node, kLast);
      for (NodeId other = 0; other <= kLast; ++other)
        REQUIRE(below.contains(other) == shape.covers(node, other));
    }
  }
}

TEST_CASE("a node hangs below its ancestors first, then below smaller stand-ins") {
  const TreeShape shape{4};
  CHECK(shape.places_for(1) == std::vector<NodeId>{0});
  CHECK(shape.places_for(3) == std::vector<NodeId>{0, 1, 2});
  CHECK(shape.places_for(4) == std::vector<NodeId>{0, 1, 2, 3});
  CHECK(shape.places_for(5) == std::vector<NodeId>{1, 0});  // 1 itself is the first stand-in
  CHECK(shape.places_for(17) == std::vector<NodeId>{4, 0, 1, 2, 3});
  for (NodeId node = 1; node < 2000; ++node)
    for (const NodeId place : shape.places_for(node)) REQUIRE(place < node);
}

TEST_CASE("a million nodes are four levels deep, and a subtree is a few ranges") {
  const TreeShape shape{32};
  CHECK(shape.depth(1'000'000) == 4);
  const RangeSet below = shape.below(1, 1'000'000);
  CHECK(below.ranges().size() == 4);
  CHECK(shape.below(kHead, 1'000'000).text() == "0-1000000");
}

}  // namespace
}  // namespace tutti
