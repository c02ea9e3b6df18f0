#include "fabric/node_folds.h"

#include <algorithm>
#include <numeric>

namespace tutti {

Result<std::vector<NodeFold>> fold_into_nodes(uint32_t all_lanes,
                                              std::span<const LaneRange> sources) {
  std::vector<uint32_t> order(sources.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](uint32_t source) { return sources[source].first; });

  std::vector<LaneRange> runs;  // of lanes without a gap
  for (const uint32_t source : order) {
    const LaneRange lanes = sources[source];
    if (runs.empty() || runs.back().first + runs.back().count < lanes.first) {
      runs.push_back(lanes);
    } else if (runs.back().first + runs.back().count > lanes.first) {
      return fail(Code::invalid, "lane {} is held twice", lanes.first);
    } else {
      runs.back().count += lanes.count;
    }
  }

  std::vector<NodeFold> folds;
  auto next = order.begin();
  for (const LaneRange run : runs) {
    for (const LaneRange node : whole_nodes(run, all_lanes)) {
      NodeFold fold{.node = node};
      std::vector<LaneRange> within;  // a node is a tree of its own: its lanes count from 0
      for (; next != order.end() && sources[*next].first < node.first + node.count; ++next) {
        fold.sources.push_back(*next);
        within.push_back({sources[*next].first - node.first, sources[*next].count});
      }
      TRY(fold.tree, FoldTree::over(node.count, within));
      folds.push_back(std::move(fold));
    }
  }
  return folds;
}

}  // namespace tutti
