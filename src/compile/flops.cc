#include "compile/flops.h"

#include "compile/gradient_part.h"

namespace tutti {
namespace {

double elements(const Graph& graph, ValueId value) {
  return static_cast<double>(graph.type(value).elements());
}

// Elements along these dimensions.
double product(const Type& type, const Names& names) {
  double all = 1;
  for (const std::string& name : names) all *= static_cast<double>(type.size_of(name));
  return all;
}

double attention_flops(const Graph& graph, const Node& op, size_t query, size_t key) {
  const Type& q = graph.type(op.operands[query]);
  const Type& k = graph.type(op.operands[key]);
  const auto keys = static_cast<double>(k.size_of(op.attributes.get<std::string>("key")));
  const double share = op.attributes.get<bool>("causal") ? 0.5 : 1;
  return 4 * static_cast<double>(q.elements()) * keys * share;
}

double flops_of(const Graph& graph, const Node& op) {
  switch (op.kind) {
    case OpKind::matmul:
      return 2 * elements(graph, op.results[0]) *
             product(graph.type(op.operands[0]), op.attributes.get<Names>("over"));
    case OpKind::attention: return attention_flops(graph, op, 0, 1);
    case OpKind::attention_grad: return 2 * attention_flops(graph, op, 1, 2);
    case OpKind::linear_cross_entropy:
    case OpKind::linear_cross_entropy_grad: {
      const double once = 2 * elements(graph, op.operands[2]) * elements(graph, op.operands[1]);
      const bool one =
          op.kind == OpKind::linear_cross_entropy || op.attributes.find(kPart) != nullptr;
      return one ? once : 2 * once;
    }
    case OpKind::repeat: return static_cast<double>(repeat_shape(op).count) * flops_of(*op.body);
    default: return 0;
  }
}

}  // namespace

double flops_of(const Graph& graph) {
  double all = 0;
  for (const Node& op : graph.ops) all += flops_of(graph, op);
  return all;
}

}  // namespace tutti
