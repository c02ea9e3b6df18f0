#include "compile/gradient_part.h"
#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {
namespace {

Attributes without_part(Attributes attributes) {
  attributes.remove(kPart);
  return attributes;
}

bool is_other_part(const Node& one, const Node& other) {
  return one.kind == other.kind && one.operands == other.operands &&
         one.attributes != other.attributes &&
         without_part(one.attributes) == without_part(other.attributes);
}

}  // namespace

// Both read the same, so that what the first has, the second has too.
Graph join_gradients(const Graph& graph) {
  Rewrite rewrite(graph);
  std::vector<bool> done(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Node& op = graph.ops[i];
    if (done[i]) continue;
    size_t other = graph.ops.size();
    if (op.attributes.find(kPart) != nullptr)
      for (size_t j = i + 1; j < graph.ops.size() && other == graph.ops.size(); ++j)
        if (is_other_part(graph.ops[j], op)) other = j;
    if (other == graph.ops.size()) {
      rewrite.copy(op, rewritten_body(op, join_gradients));
      continue;
    }
    done[other] = true;
    const bool input_first = has_input_part(op.attributes);
    const Node& input = input_first ? op : graph.ops[other];
    const Node& weights = input_first ? graph.ops[other] : op;
    Node both = op;
    both.attributes = without_part(op.attributes);
    both.results = input.results;
    both.results.insert(both.results.end(), weights.results.begin(), weights.results.end());
    rewrite.copy(both);
  }
  return std::move(rewrite).finish();
}

}  // namespace tutti
