// Writes a graph anew, operation by operation: what every pass is made of.
#pragma once

#include <vector>

#include "compile/graph.h"

namespace tutti {

class Rewrite {
 public:
  // Begins with the inputs of `from`, which must outlive this.
  explicit Rewrite(const Graph& from);

  // What stands for a value of the old graph in the new one.
  ValueId operator()(ValueId old) const { return now_[old]; }
  void replace(ValueId old, ValueId now) { now_[old] = now; }

  // The same operation on what its operands have become.
  void copy(const Node& op) { copy(op, op.body); }
  void copy(const Node& op, std::shared_ptr<const Graph> body);
  // Another operation, whose result stands for `old`. It must be right: types are inferred.
  ValueId make(Node op, const Type* given = nullptr);

  // The operations of another graph, on these values for its inputs; what its outputs are.
  std::vector<ValueId> insert(const Graph& other, const std::vector<ValueId>& inputs,
                              const std::string& at);

  Graph& graph() { return to_; }
  const Graph& graph() const { return to_; }
  // With the outputs of the old graph.
  Graph finish() &&;

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> now_;
};

// Applies a pass to the bodies of all operations; the graph itself is left to the caller. What is
// fused is a kernel already: passes have been through it, and a part of it cannot be one more.
template <class Pass>
std::shared_ptr<const Graph> rewritten_body(const Node& op, const Pass& pass) {
  if (op.body == nullptr || op.kind == OpKind::fused) return op.body;
  return std::make_shared<const Graph>(pass(*op.body));
}

// The operation that makes each value; nothing for inputs.
std::vector<const Node*> makers(const Graph& graph);
// How often each value is used, outputs counted.
std::vector<uint32_t> use_counts(const Graph& graph);

}  // namespace tutti
