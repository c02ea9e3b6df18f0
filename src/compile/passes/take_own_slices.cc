#include "compile/collective.h"
#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {

Graph take_own_slices(const Graph& graph) {
  Rewrite rewrite(graph);
  for (const Node& op : graph.ops) {
    const auto* index = op.attributes.find<int64_t>(kOwnIndex);
    if (op.kind != OpKind::own_slice || index == nullptr) {
      rewrite.copy(op, rewritten_body(op, take_own_slices));
      continue;
    }
    const std::string dim = op.attributes.get<std::string>("dim");
    const int64_t size = graph.type(op.results[0]).size_of(dim);
    rewrite.replace(
        op.results[0],
        rewrite.make({.kind = OpKind::slice,
                      .operands = {rewrite(op.operands[0])},
                      .attributes = {{"dim", dim}, {"start", *index * size}, {"size", size}},
                      .at = op.at}));
  }
  return std::move(rewrite).finish();
}

}  // namespace tutti
