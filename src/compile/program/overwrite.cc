#include "compile/program/overwrite.h"

#include <algorithm>
#include <ranges>

namespace tutti {
namespace {

bool keeps_places(const Graph& body) {
  return std::ranges::none_of(body.ops, [](const Node& op) {
    return op.kind == OpKind::transpose || op_class(op.kind) == OpClass::reduce;
  });
}

}  // namespace

Overwrite::Overwrite(const Graph& graph)
    : graph_(graph),
      made_(graph.types.size()),
      read_(graph.types.size()),
      itself_(graph.types.size()) {
  for (ValueId value = 0; value < itself_.size(); ++value) itself_[value] = value;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Node& op = graph.ops[i];
    for (const ValueId result : op.results) made_[result] = i + 1;
    for (const ValueId operand : op.operands) read_[operand] = i + 1;
    // It may be made where this is wanted.
    if (op.kind != OpKind::reshape || made_[op.operands[0]] == 0) continue;
    made_[op.results[0]] = made_[op.operands[0]];
    itself_[op.results[0]] = itself_[op.operands[0]];
  }
  // Who reads what is only looked at in another way reads the thing itself.
  for (const Node& op : std::views::reverse(graph.ops))
    if (op_class(op.kind) == OpClass::shape)
      for (const ValueId operand : op.operands)
        read_[operand] = std::max(read_[operand], read_[op.results[0]]);
}

bool Overwrite::is_view_of(ValueId value, ValueId whole) const {
  for (const Node& op : std::views::reverse(graph_.ops))
    if (op.results[0] == value && op_class(op.kind) == OpClass::shape) value = op.operands[0];
  return value == whole;
}

bool Overwrite::repeat_is_too_early(const Node& op, ValueId old, size_t result) const {
  const RepeatShape shape = repeat_shape(op);
  const Overwrite inside(*op.body);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] != old) continue;
    const bool carried = i < shape.carried;
    if (i >= shape.carried + shape.sliced) return true;  // every round reads all of it
    if (carried != (result < shape.carried)) return true;
    if (carried && i != result) return true;
    if (carried && shape.count > 1) continue;  // it goes to and fro, if it may not stay
    if (inside.is_too_early(op.body->inputs[i].value, op.body->outputs[result].value)) return true;
  }
  return false;
}

bool Overwrite::is_too_early(ValueId old, ValueId next) const {
  const size_t maker = made_[next];
  if (read_[old] != maker || maker == 0) return read_[old] > maker;
  const Node& op = graph_.ops[maker - 1];
  if (op.kind == OpKind::repeat) {
    const auto result = std::ranges::find(op.results, itself_[next]) - op.results.begin();
    return repeat_is_too_early(op, old, static_cast<size_t>(result));
  }
  // A cache's own rows may go somewhere else in it.
  if (op.kind == OpKind::update) return is_view_of(op.operands[1], old);
  if (op.kind == OpKind::adamw) return false;
  // Element by element, each is read before it is written; unless it is read as another one.
  if (op.kind == OpKind::fused) return !keeps_places(*op.body);
  const OpClass its = op_class(op.kind);
  return its != OpClass::unary && its != OpClass::binary && its != OpClass::ternary;
}

}  // namespace tutti
