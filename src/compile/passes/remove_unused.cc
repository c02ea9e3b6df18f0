#include <algorithm>
#include <ranges>

#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {
namespace {

template <class T>
std::vector<T> kept(const std::vector<T>& all, const std::vector<bool>& keep) {
  std::vector<T> some;
  for (size_t i = 0; i < all.size(); ++i)
    if (keep[i]) some.push_back(all[i]);
  return some;
}

// The values of a graph that these outputs need.
std::vector<bool> needed(const Graph& graph, const std::vector<bool>& outputs) {
  std::vector<bool> need(graph.types.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    if (outputs[i]) need[graph.outputs[i].value] = true;
  for (const Node& op : std::views::reverse(graph.ops)) {
    if (std::ranges::none_of(op.results, [&](ValueId result) { return need[result]; })) continue;
    for (const ValueId operand : op.operands) need[operand] = true;
  }
  return need;
}

// What of a repeat is needed when these of its results are. A carried value that is read in a round
// is needed whatever becomes of it after the last.
struct RepeatNeeds {
  std::vector<bool> inputs;
  std::vector<bool> outputs;
};

RepeatNeeds repeat_needs(const Node& op, const std::vector<bool>& results) {
  const size_t carried = repeat_shape(op).carried;
  RepeatNeeds needs{.outputs = results};
  for (bool changed = true; changed;) {
    changed = false;
    const auto inside = needed(*op.body, needs.outputs);
    needs.inputs.assign(op.operands.size(), false);
    for (size_t i = 0; i < op.operands.size(); ++i)
      needs.inputs[i] = inside[op.body->inputs[i].value] || (i < carried && needs.outputs[i]);
    for (size_t i = 0; i < carried; ++i) {
      if (!needs.inputs[i] || needs.outputs[i]) continue;
      needs.outputs[i] = changed = true;
    }
  }
  return needs;
}

// The operation with only what is needed of it.
Node narrowed_repeat(const Node& op, const RepeatNeeds& needs) {
  const RepeatShape shape = repeat_shape(op);
  const auto count = [&](size_t from, size_t to) {
    return std::count(needs.inputs.begin() + static_cast<ptrdiff_t>(from),
                      needs.inputs.begin() + static_cast<ptrdiff_t>(to), true);
  };
  Graph body = *op.body;
  body.inputs = kept(body.inputs, needs.inputs);
  body.outputs = kept(body.outputs, needs.outputs);
  Node narrowed = op;
  narrowed.operands = kept(op.operands, needs.inputs);
  narrowed.results = kept(op.results, needs.outputs);
  narrowed.attributes.set("carried", int64_t{count(0, shape.carried)});
  narrowed.attributes.set("sliced", int64_t{count(shape.carried, shape.carried + shape.sliced)});
  narrowed.body = std::make_shared<const Graph>(remove_unused(body));
  return narrowed;
}

}  // namespace

Graph remove_unused(const Graph& graph) {
  // From the end, so that what only an unneeded part of a repeat reads is not needed either.
  std::vector<bool> need(graph.types.size());
  for (const Output& output : graph.outputs) need[output.value] = true;
  std::vector<Node> left;
  for (const Node& op : std::views::reverse(graph.ops)) {
    std::vector<bool> results;
    for (const ValueId result : op.results) results.push_back(need[result]);
    if (std::ranges::count(results, true) == 0) continue;
    Node narrowed = op.kind == OpKind::repeat ? narrowed_repeat(op, repeat_needs(op, results)) : op;
    for (const ValueId operand : narrowed.operands) need[operand] = true;
    left.push_back(std::move(narrowed));
  }
  Rewrite rewrite(graph);
  for (const Node& op : std::views::reverse(left)) rewrite.copy(op);
  return std::move(rewrite).finish();
}

}  // namespace tutti
