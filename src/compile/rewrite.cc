#include "compile/rewrite.h"

#include <utility>

#include "base/assert.h"

namespace tutti {

Rewrite::Rewrite(const Graph& from) : from_(from), now_(from.types.size(), kNoValue) {
  to_.name = from.name;
  for (const Input& input : from.inputs)
    now_[input.value] = to_.add_input(input.name, from.type(input.value), input.role);
}

void Rewrite::copy(const Node& op, std::shared_ptr<const Graph> body) {
  Node copied{.kind = op.kind, .attributes = op.attributes, .body = std::move(body), .at = op.at};
  for (const ValueId operand : op.operands) copied.operands.push_back(now_[operand]);
  for (const ValueId result : op.results) {
    now_[result] = to_.add_value(from_.type(result));
    copied.results.push_back(now_[result]);
  }
  to_.ops.push_back(std::move(copied));
}

ValueId Rewrite::make(Node op, const Type* given) {
  auto made = to_.add(std::move(op), given);
  TUTTI_ASSERT(made.has_value(), "a pass makes only operations that are right");
  return made->front();
}

std::vector<ValueId> Rewrite::insert(const Graph& other, const std::vector<ValueId>& inputs,
                                     const std::string& at) {
  std::vector<ValueId> here(other.types.size(), kNoValue);
  for (size_t i = 0; i < inputs.size(); ++i) here[other.inputs[i].value] = inputs[i];
  for (const Node& op : other.ops) {
    Node copied{.kind = op.kind, .attributes = op.attributes, .body = op.body, .at = at};
    for (const ValueId operand : op.operands) copied.operands.push_back(here[operand]);
    for (const ValueId result : op.results)
      copied.results.push_back(here[result] = to_.add_value(other.type(result)));
    to_.ops.push_back(std::move(copied));
  }
  std::vector<ValueId> results;
  for (const Output& output : other.outputs) results.push_back(here[output.value]);
  return results;
}

Graph Rewrite::finish() && {
  for (const Output& output : from_.outputs) to_.add_output(output.name, now_[output.value]);
  return std::move(to_);
}

std::vector<const Node*> makers(const Graph& graph) {
  std::vector<const Node*> all(graph.types.size());
  for (const Node& op : graph.ops)
    for (const ValueId result : op.results) all[result] = &op;
  return all;
}

std::vector<uint32_t> use_counts(const Graph& graph) {
  std::vector<uint32_t> counts(graph.types.size());
  for (const Node& op : graph.ops)
    for (const ValueId operand : op.operands) ++counts[operand];
  for (const Output& output : graph.outputs) ++counts[output.value];
  return counts;
}

}  // namespace tutti
