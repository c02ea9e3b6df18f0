#include "compile/shard/graph_sharder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "compile/collective.h"
#include "compile/rewrite.h"

namespace tutti {

GraphSharder::GraphSharder(const Graph& from, const ShardContext& context,
                           std::vector<TensorSharding> inputs)
    : from_(from),
      context_(context),
      resharder_(to_, context.mesh, context.reshard_limit),
      versions_(from.types.size()),
      constants_(from.types.size()),
      uses_(use_counts(from)) {
  to_.name = from.name;
  for (size_t i = 0; i < from.inputs.size(); ++i) {
    const Input& input = from.inputs[i];
    Type local = local_type(type(input.value), inputs[i], context.mesh);
    keep(input.value, std::move(inputs[i]),
         to_.add_input(input.name, std::move(local), input.role));
  }
}

Result<void> GraphSharder::run() {
  for (const Node& op : from_.ops) TRY_DO(step(op));
  return {};
}

TensorSharding GraphSharder::output(size_t i) const {
  const ValueId old = from_.outputs[i].value;
  TensorSharding settles = settled(old);
  if (is_constant(old) || versions_[old].size() > 1) return settles;
  const TensorSharding& lies = versions_[old][0].lies;
  Names scattered = common(lies.partial, settles.axes());
  return reduced(old, scattered, settles);
}

Result<Graph> GraphSharder::finish(const std::vector<TensorSharding>& outputs) && {
  for (size_t i = 0; i < from_.outputs.size(); ++i) {
    const Output& output = from_.outputs[i];
    TRY(const ValueId value, need(output.value, outputs[i], ""));
    to_.add_output(output.name, value);
  }
  return std::move(to_);
}

void GraphSharder::keep(ValueId old, TensorSharding lies, ValueId value) {
  versions_[old].push_back({std::move(lies), value});
}

TensorSharding GraphSharder::settled(ValueId old) const {
  if (is_constant(old)) return context_.table.of(type(old));
  for (const Version& version : versions_[old])
    if (version.lies.partial.empty()) return version.lies;
  return reduced(old, versions_[old][0].lies.partial, {});
}

TensorSharding GraphSharder::reduced(ValueId old, const Names& axes,
                                     const TensorSharding& wanted) const {
  TensorSharding lies = versions_[old][0].lies;
  const TensorSharding rules = context_.table.of(type(old));
  const auto scatter = [&](const TensorSharding& as, const std::string& axis) {
    for (size_t dim = 0; dim < as.dims.size(); ++dim) {
      DimSharding& is = lies.dims[dim];
      const Names& wants = as.dims[dim].axes;
      const size_t next = is.axes.size();
      if (next >= wants.size() || wants[next] != axis) continue;
      if (!std::equal(is.axes.begin(), is.axes.end(), wants.begin())) continue;
      if (next > 0 && is.segments != as.dims[dim].segments) continue;
      is.axes.push_back(axis);
      is.segments = as.dims[dim].segments;
      return true;
    }
    return false;
  };
  // An axis may have to wait for the one that splits outside of it.
  Names left = axes;
  const auto is_done = [&](const std::string& axis) {
    return scatter(wanted, axis) || scatter(rules, axis);
  };
  while (std::erase_if(left, is_done) != 0) {
  }
  lies.partial = without(std::move(lies.partial), axes);
  return lies;
}

Names GraphSharder::open(ValueId old) const {
  if (is_constant(old) || uses_[old] != 1 || versions_[old].size() != 1) return {};
  return versions_[old][0].lies.partial;
}

namespace {

// Axes that have to go before the others can be reached: each is a gather.
size_t gathers(const TensorSharding& from, const TensorSharding& to) {
  size_t count = 0;
  for (size_t i = 0; i < from.dims.size(); ++i) {
    const DimSharding& is = from.dims[i];
    const DimSharding& wants = to.dims[i];
    const auto same = std::ranges::mismatch(is.axes, wants.axes).in1 - is.axes.begin();
    const bool other = !is.axes.empty() && is.segments != wants.segments;
    count += is.axes.size() - (other ? 0 : static_cast<size_t>(same));
  }
  return count;
}

}  // namespace

Result<ValueId> GraphSharder::need(ValueId old, const TensorSharding& wanted,
                                   const std::string& at) {
  for (const Version& version : versions_[old])
    if (version.lies == wanted) return version.value;
  if (is_constant(old)) {
    TUTTI_ASSERT(wanted.partial.empty() || is_zero(old), "only zero is a sum of itself");
    const Type local = local_type(type(old), wanted, context_.mesh);
    keep(old, wanted,
         resharder_.emit(
             {.kind = OpKind::constant, .attributes = {{"value", *constants_[old]}}, .at = at},
             &local));
    return versions_[old].back().value;
  }
  const Version* nearest = nullptr;
  for (const Version& version : versions_[old]) {
    if (version.lies.partial != wanted.partial) continue;
    if (nearest == nullptr || gathers(version.lies, wanted) < gathers(nearest->lies, wanted))
      nearest = &version;
  }
  if (nearest == nullptr) {
    // Summed as the rules would have it, which is what others will need, and then on from there.
    const Version made = versions_[old][0];
    const TensorSharding sums = reduced(old, without(made.lies.partial, wanted.partial), wanted);
    TRY(const ValueId value, resharder_.reshard(made.value, type(old), made.lies, sums, at));
    keep(old, sums, value);
    nearest = &versions_[old].back();
  }
  if (nearest->lies == wanted) return nearest->value;
  TRY(const ValueId value,
      resharder_.reshard(nearest->value, type(old), nearest->lies, wanted, at));
  keep(old, wanted, value);
  return value;
}

Result<void> GraphSharder::step(const Node& op) {
  if (is_collective(op) || op.kind == OpKind::fused)
    return fail(Code::invalid,
                "{}{}{} is not for a graph that is to be sharded: begin with it as "
                "it was traced",
                op_info(op.kind).name, op.at.empty() ? "" : " of ", op.at);
  switch (op.kind) {
    case OpKind::constant:
      constants_[op.results[0]] = op.attributes.get<double>("value");
      return {};
    case OpKind::iota: return make_iota(op);
    case OpKind::random: make_random(op); return {};
    case OpKind::squared_norm: return add_squares(op);
    case OpKind::repeat: return divide_repeat(op);
    case OpKind::linear_cross_entropy:
    case OpKind::linear_cross_entropy_grad:
      return splits_vocabulary(op) ? write_in_primitives(op) : divide(op);
    case OpKind::reshape:
    case OpKind::transpose:
    case OpKind::broadcast:
    case OpKind::slice:
      if (is_constant(op.operands[0])) {
        constants_[op.results[0]] = constants_[op.operands[0]];
        return {};
      }
      return divide(op);
    default: return divide(op);
  }
}

Result<void> GraphSharder::divide(const Node& op) {
  std::vector<TensorSharding> lie;
  for (const ValueId operand : op.operands)
    lie.push_back(is_constant(operand) ? whole_sharding(type(operand)) : settled(operand));
  auto built = op_space(from_, op, context_.table, context_.mesh, lie);
  if (!built) return fail(op.at.empty() ? built.error() : built.error().context(op.at));
  OpSpace& space = *built;
  const Handed handed = assign(op, space);
  if (space.looked_up() != nullptr) return look_up(op, space);
  std::vector<ValueId> operands;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    TensorSharding wanted = space.operand(i, type(op.operands[i]));
    if (std::ranges::count(handed.operands, i) != 0) wanted.partial = handed.axes;
    TRY(const ValueId operand, need(op.operands[i], wanted, op.at));
    operands.push_back(operand);
  }
  std::vector<TensorSharding> results;
  for (size_t i = 0; i < op.results.size(); ++i) {
    results.push_back(space.result(i, type(op.results[i])));
    for (const std::string& axis : handed.axes)
      results[i].partial = with(std::move(results[i].partial), axis);
  }
  write_local(op, space, std::move(operands), std::move(results));
  return {};
}

GraphSharder::Handed GraphSharder::assign(const Node& op, OpSpace& space) const {
  const LinearOperands linear = linear_operands(op);
  std::vector<size_t> summands;  // those that may be partial
  for (const size_t i : linear.which)
    if (!is_zero(op.operands[i])) summands.push_back(i);
  const auto open_of = [&](size_t i) { return open(op.operands[i]); };
  // Summands are added first and summed over ranks once; so is what becomes less by a sum.
  if ((linear.together && summands.size() > 1) || op.kind == OpKind::reduce_sum) {
    Names axes = summands.empty() ? Names{} : open_of(summands[0]);
    for (const size_t i : summands) axes = common(axes, open_of(i));
    space.assign(axes, context_.mesh);
    return {axes, linear.which};
  }
  // Anything else is better done to a part of the sum, if there is one.
  space.assign({}, context_.mesh);
  for (const size_t i : summands) {
    Names axes = open_of(i);
    std::erase_if(axes, [&](const std::string& axis) { return space.has_taken(axis); });
    if (axes.empty()) continue;
    if (op.kind == OpKind::broadcast &&
        type(op.results[0]).elements() > type(op.operands[i]).elements())
      continue;
    return {axes, linear.together ? linear.which : std::vector{i}};
  }
  return {};
}

// With results as `results` says, and those of a maximum over all ranks.
void GraphSharder::write_local(const Node& op, const OpSpace& space, std::vector<ValueId> operands,
                               std::vector<TensorSharding> results) {
  Node local{
      .kind = op.kind, .operands = std::move(operands), .attributes = op.attributes, .at = op.at};
  const Type given = local_type(type(op.results[0]), results[0], context_.mesh);
  const std::string dim = op.attributes.get<std::string>("dim");
  if (op.kind == OpKind::slice || op.kind == OpKind::pad) {
    const size_t place = *type(op.operands[0]).find(dim);
    const int64_t ranks =
        context_.mesh.product(space.operand(0, type(op.operands[0])).dims[place].axes);
    for (const char* key : {"start", "size", "low", "high"})
      if (const auto* number = op.attributes.find<int64_t>(key))
        local.attributes.set(key, *number / ranks);
  }
  if (op.kind == OpKind::scatter_add) local.attributes.set("size", given.size_of(dim));
  auto made = to_.add(std::move(local), &given);
  TUTTI_ASSERT(made.has_value(), "an operation on parts is as right as on the whole");
  for (size_t i = 0; i < results.size(); ++i) {
    ValueId value = (*made)[i];
    if (op.kind == OpKind::reduce_max) {
      for (const std::string& axis : results[i].partial)
        value = resharder_.all_reduce(value, axis, true, op.at);
      results[i].partial.clear();
    }
    keep(op.results[i], std::move(results[i]), value);
  }
}

// Where parts begin is another number on each rank: they take theirs of the numbers along the
// dimension.
Result<void> GraphSharder::make_iota(const Node& op) {
  const Type& whole = type(op.results[0]);
  const TensorSharding lies = context_.table.of(whole);
  const size_t place = *whole.find(op.attributes.get<std::string>("dim"));
  const Type local = local_type(whole, lies, context_.mesh);
  const auto make = [&](const Type& its) {
    return resharder_.emit({.kind = OpKind::iota, .attributes = op.attributes, .at = op.at}, &its);
  };
  if (lies.dims[place].axes.empty()) {
    keep(op.results[0], lies, make(local));
    return {};
  }
  const Type line{whole.dtype, {whole.dims[place]}};
  TRY(ValueId value, resharder_.reshard(make(line), line, whole_sharding(line),
                                        {.dims = {lies.dims[place]}}, op.at));
  if (whole.dims.size() > 1)
    value = resharder_.emit({.kind = OpKind::broadcast, .operands = {value}, .at = op.at}, &local);
  keep(op.results[0], lies, value);
  return {};
}

// Bits are of the place in the whole tensor, so that all of them are made.
void GraphSharder::make_random(const Node& op) {
  const Type& whole = type(op.results[0]);
  const ValueId step = *need(op.operands[0], whole_sharding(type(op.operands[0])), op.at);
  keep(op.results[0], whole_sharding(whole),
       resharder_.emit(
           {.kind = OpKind::random, .operands = {step}, .attributes = op.attributes, .at = op.at},
           &whole));
}

// Of tensors that lie along the same axes together; sums over these, and then all.
Result<void> GraphSharder::add_squares(const Node& op) {
  std::vector<Names> groups;
  std::vector<std::vector<ValueId>> members;
  for (const ValueId operand : op.operands) {
    const TensorSharding lies = settled(operand);
    TRY(const ValueId value, need(operand, lies, op.at));
    const auto found = std::ranges::find(groups, lies.axes());
    if (found == groups.end()) {
      groups.push_back(lies.axes());
      members.push_back({value});
    } else {
      members[static_cast<size_t>(found - groups.begin())].push_back(value);
    }
  }
  ValueId total = kNoValue;
  for (size_t i = 0; i < groups.size(); ++i) {
    ValueId sum =
        resharder_.emit({.kind = op.kind, .operands = std::move(members[i]), .at = op.at});
    for (const std::string& axis : groups[i]) sum = resharder_.all_reduce(sum, axis, false, op.at);
    if (total != kNoValue)
      sum = resharder_.emit({.kind = OpKind::add, .operands = {total, sum}, .at = op.at});
    total = sum;
  }
  if (groups.empty()) total = resharder_.emit({.kind = op.kind, .at = op.at});
  keep(op.results[0], whole_sharding(type(op.results[0])), total);
  return {};
}

}  // namespace tutti
