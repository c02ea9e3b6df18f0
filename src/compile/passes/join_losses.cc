#include <algorithm>
#include <set>

#include "compile/gradient_part.h"
#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {
namespace {

bool is_gradient_of(const Node& gradient, const Node& loss) {
  Attributes attributes = gradient.attributes;
  attributes.remove(kPart);
  return gradient.kind == OpKind::linear_cross_entropy_grad &&
         has_input_part(gradient.attributes) && attributes == loss.attributes &&
         std::equal(loss.operands.begin(), loss.operands.end(), gradient.operands.begin());
}

// The operations after `from` that the one at `until` needs, with itself, in order; empty if it
// needs `from`.
std::vector<size_t> needed_between(const Graph& graph, size_t from, size_t until) {
  std::set<ValueId> wanted(graph.ops[until].operands.begin(), graph.ops[until].operands.end());
  std::vector<size_t> needed{until};
  for (size_t i = until; i-- > from;) {
    const Node& op = graph.ops[i];
    if (std::ranges::none_of(op.results, [&](ValueId value) { return wanted.contains(value); }))
      continue;
    if (i == from) return {};
    wanted.insert(op.operands.begin(), op.operands.end());
    needed.push_back(i);
  }
  std::ranges::reverse(needed);
  return needed;
}

}  // namespace

Graph join_losses(const Graph& graph) {
  Rewrite rewrite(graph);
  std::vector<bool> done(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Node& op = graph.ops[i];
    if (done[i]) continue;
    std::vector<size_t> first;
    if (op.kind == OpKind::linear_cross_entropy)
      for (size_t j = i + 1; j < graph.ops.size() && first.empty(); ++j)
        if (is_gradient_of(graph.ops[j], op)) first = needed_between(graph, i, j);
    if (first.empty()) {
      rewrite.copy(op, rewritten_body(op, join_losses));
      continue;
    }
    for (const size_t j : first) {
      if (!done[j]) rewrite.copy(graph.ops[j], rewritten_body(graph.ops[j], join_losses));
      done[j] = true;
    }
    rewrite.replace(op.results[0], rewrite(graph.ops[first.back()].results[0]));
  }
  return std::move(rewrite).finish();
}

}  // namespace tutti
