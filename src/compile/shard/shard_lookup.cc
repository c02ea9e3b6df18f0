// Tables of which each rank has some of the rows: embeddings and the loss over a split vocabulary.
#include "base/assert.h"
#include "compile/decompose.h"
#include "compile/shard/graph_sharder.h"

namespace tutti {

GraphSharder::OwnIndices GraphSharder::own_indices(ValueId indices, const SpaceSlot& rows,
                                                   const std::string& at) {
  const Type whole{DType::i64, to_.type(indices).dims};
  const auto make = [&](OpKind kind, std::vector<ValueId> operands, const Type* given = nullptr) {
    return resharder_.emit({.kind = kind, .operands = std::move(operands), .at = at}, given);
  };
  const auto number = [&](int64_t value, const Type& type) {
    return resharder_.emit(
        {.kind = OpKind::constant, .attributes = {{"value", static_cast<double>(value)}}, .at = at},
        &type);
  };
  const int64_t ranks = context_.mesh.product(rows.axes);
  const int64_t own_rows = rows.size / ranks;
  // Where its rows begin: its place among the ranks, times so many.
  const Type places{DType::i64, {{"part", ranks}}};
  const ValueId all = resharder_.emit(
      {.kind = OpKind::iota, .attributes = {{"dim", std::string("part")}}, .at = at}, &places);
  const auto place =
      resharder_.reshard(all, places, whole_sharding(places), {.dims = {{rows.axes}}}, at);
  TUTTI_ASSERT(place.has_value(), "slices gather nothing");
  const Type single{DType::i64, {}};
  const ValueId own = make(OpKind::reshape, {*place}, &single);
  ValueId first = make(OpKind::mul, {own, number(own_rows, single)});
  if (!whole.dims.empty()) first = make(OpKind::broadcast, {first}, &whole);
  const bool wide = to_.type(indices).dtype == DType::i64;
  const ValueId index =
      make(OpKind::sub, {wide ? indices : make(OpKind::cast, {indices}, &whole), first});
  const ValueId zero = number(0, whole);
  const ValueId are_own =
      make(OpKind::logical_and, {make(OpKind::less_equal, {zero, index}),
                                 make(OpKind::less, {index, number(own_rows, whole)})});
  return {make(OpKind::select, {are_own, index, zero}), are_own};
}

ValueId GraphSharder::zero_where_not(ValueId are_own, ValueId value, const std::string& at) {
  const Type type = to_.type(value);
  const Type truths = type.with(DType::boolean);
  const ValueId zero =
      resharder_.emit({.kind = OpKind::constant, .attributes = {{"value", 0.0}}, .at = at}, &type);
  if (to_.type(are_own) != truths)
    are_own =
        resharder_.emit({.kind = OpKind::broadcast, .operands = {are_own}, .at = at}, &truths);
  return resharder_.emit({.kind = OpKind::select, .operands = {are_own, value, zero}, .at = at});
}

Result<void> GraphSharder::look_up(const Node& op, const OpSpace& space) {
  const bool gathers = op.kind == OpKind::gather;
  std::vector<ValueId> operands;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    TRY(const ValueId operand, need(op.operands[i], space.operand(i, type(op.operands[i])), op.at));
    operands.push_back(operand);
  }
  const OwnIndices own = own_indices(operands[gathers ? 1 : 0], *space.looked_up(), op.at);
  const TensorSharding lies = space.result(0, type(op.results[0]));
  Node local{.kind = op.kind, .attributes = op.attributes, .at = op.at};
  if (gathers) {
    local.operands = {operands[0], own.indices};
    const ValueId rows = resharder_.emit(std::move(local));
    keep(op.results[0], lies, zero_where_not(own.are_own, rows, op.at));
    return {};
  }
  local.operands = {own.indices, zero_where_not(own.are_own, operands[1], op.at)};
  local.attributes.set("size",
                       space.looked_up()->size / context_.mesh.product(space.looked_up()->axes));
  keep(op.results[0], lies, resharder_.emit(std::move(local)));
  return {};
}

bool GraphSharder::splits_vocabulary(const Node& op) const {
  Type logits = type(op.operands[0]).without({op.attributes.get<std::string>("over")});
  const Type& weight = type(op.operands[1]);
  const std::string vocab = op.attributes.get<std::string>("vocab");
  logits.dims.push_back(weight.dims[*weight.find(vocab)]);
  return !context_.table.of(logits).dims.back().axes.empty();
}

// Kernels take the greatest logit and the sum over a whole row; in primitives, ranks can meet in
// between. The logits are there all at once then.
Result<void> GraphSharder::write_in_primitives(const Node& op) {
  std::vector<Type> types;
  std::vector<TensorSharding> lie;
  for (const ValueId operand : op.operands) {
    types.push_back(type(operand));
    lie.push_back(settled(operand));
  }
  Graph whole = decompose(op.kind, types, op.attributes);
  for (Node& each : whole.ops) each.at = op.at;
  GraphSharder inner(whole, context_, lie);
  TRY_DO(inner.run());
  std::vector<TensorSharding> results;
  for (size_t i = 0; i < op.results.size(); ++i) results.push_back(inner.output(i));
  TRY(const Graph local, std::move(inner).finish(results));
  std::vector<ValueId> here(local.types.size(), kNoValue);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    TRY(here[local.inputs[i].value], need(op.operands[i], lie[i], op.at));
  }
  for (Node each : local.ops) {
    for (ValueId& operand : each.operands) operand = here[operand];
    for (ValueId& result : each.results) result = here[result] = to_.add_value(local.type(result));
    to_.ops.push_back(std::move(each));
  }
  for (size_t i = 0; i < op.results.size(); ++i)
    keep(op.results[i], std::move(results[i]), here[local.outputs[i].value]);
  return {};
}

}  // namespace tutti
