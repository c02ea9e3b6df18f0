// Rounds over the parts that ranks have. What rounds carry lies the same before and after each.
#include <memory>

#include "base/assert.h"
#include "compile/shard/graph_sharder.h"

namespace tutti {

// Carried values lie as the rules say, others as they lie. A sum that begins with zero may stay
// partial through all rounds, over every axis as far as is known yet.
Result<std::vector<TensorSharding>> GraphSharder::repeat_inputs(const Node& op) const {
  const RepeatShape shape = repeat_shape(op);
  std::vector<TensorSharding> inputs;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ValueId operand = op.operands[i];
    if (i >= shape.carried) {
      TensorSharding lies = settled(operand);
      // Rounds go through all parts, so that none is missing.
      if (i < shape.carried + shape.sliced) lies.dims.erase(lies.dims.begin());
      inputs.push_back(std::move(lies));
      continue;
    }
    TensorSharding lies = context_.table.of(type(operand));
    if (is_zero(operand))
      for (const ShardAxis& axis : context_.mesh.axes())
        if (axis.size > 1 && !lies.has_axis(axis.name))
          lies.partial = with(std::move(lies.partial), axis.name);
    inputs.push_back(std::move(lies));
  }
  return inputs;
}

Result<void> GraphSharder::divide_repeat(const Node& op) {
  const RepeatShape shape = repeat_shape(op);
  TRY(std::vector<TensorSharding> inputs, repeat_inputs(op));
  std::vector<TensorSharding> outputs(op.results.size());
  Graph body;
  // Each try may only take axes away from what carried sums are partial over.
  for (bool stable = false; !stable;) {
    GraphSharder inner(*op.body, context_, inputs);
    TRY_DO(inner.run());
    stable = true;
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i] = inner.output(i);
      if (i >= shape.carried) continue;
      Names both = common(inputs[i].partial, outputs[i].partial);
      if (both != inputs[i].partial) stable = false;
      inputs[i].partial = std::move(both);
      outputs[i] = inputs[i];
    }
    if (!stable) continue;
    TRY(body, std::move(inner).finish(outputs));
  }
  Node local{.kind = op.kind,
             .attributes = op.attributes,
             .body = std::make_shared<const Graph>(std::move(body)),
             .at = op.at};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    TensorSharding wanted = inputs[i];
    if (i >= shape.carried && i < shape.carried + shape.sliced)
      wanted.dims.insert(wanted.dims.begin(), DimSharding{});
    TRY(const ValueId operand, need(op.operands[i], wanted, op.at));
    local.operands.push_back(operand);
  }
  auto made = to_.add(std::move(local));
  TUTTI_ASSERT(made.has_value(), "a body of parts fits its operands");
  for (size_t i = 0; i < op.results.size(); ++i) {
    if (i >= shape.carried) outputs[i].dims.insert(outputs[i].dims.begin(), DimSharding{});
    keep(op.results[i], std::move(outputs[i]), (*made)[i]);
  }
  return {};
}

}  // namespace tutti
