#include "compile/decompose.h"
#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {
namespace {

bool has_no_kernel(OpKind kind) {
  return kind == OpKind::gelu || kind == OpKind::gelu_grad || kind == OpKind::softmax;
}

}  // namespace

Graph expand(const Graph& graph) {
  Rewrite rewrite(graph);
  for (const Node& op : graph.ops) {
    if (!has_no_kernel(op.kind)) {
      rewrite.copy(op, rewritten_body(op, expand));
      continue;
    }
    std::vector<Type> types;
    std::vector<ValueId> operands;
    for (const ValueId operand : op.operands) {
      types.push_back(graph.type(operand));
      operands.push_back(rewrite(operand));
    }
    const auto made = rewrite.insert(decompose(op.kind, types, op.attributes), operands, op.at);
    for (size_t i = 0; i < made.size(); ++i) rewrite.replace(op.results[i], made[i]);
  }
  return std::move(rewrite).finish();
}

}  // namespace tutti
