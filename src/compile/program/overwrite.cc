#include "compile/program/overwrite.h"

#include <algorithm>
#include <ranges>

namespace tutti {
namespace {

// Of loops over rows: sums of a row are made before it is written, but not all that reads it.
bool has_sums(const Graph& body) {
  return std::ranges::any_of(body.ops,
                             [](const Node& op) { return op_class(op.kind) == OpClass::reduce; });
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

bool Overwrite::has_places_of(ValueId value, ValueId whole) const {
  for (const Node& op : std::views::reverse(graph_.ops))
    if (op.results[0] == value && op.kind == OpKind::reshape) value = op.operands[0];
  return value == whole;
}

// Element by element, each is read before it is written; unless it is read as another one.
bool Overwrite::elements_are_too_early(const Node& op, ValueId old, ValueId next) const {
  const auto result = std::ranges::find(op.results, itself_[next]) - op.results.begin();
  const bool fused = op.kind == OpKind::fused;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!is_view_of(op.operands[i], old)) continue;
    if (!has_places_of(op.operands[i], old)) return true;
    if (!fused) continue;
    const Graph& body = *op.body;
    const ValueId out = body.outputs[static_cast<size_t>(result)].value;
    if (has_sums(body) || body.type(body.inputs[i].value).dims != body.type(out).dims) return true;
  }
  return false;
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
  const OpClass its = op_class(op.kind);
  const bool by_element = its == OpClass::unary || its == OpClass::binary ||
                          its == OpClass::ternary || op.kind == OpKind::fused;
  return !by_element || elements_are_too_early(op, old, next);
}

}  // namespace tutti
