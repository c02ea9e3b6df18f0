#include <optional>

#include "compile/interpret.h"
#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {
namespace {

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : graph_(graph), rewrite_(graph) {}

  Graph run() {
    for (const Node& op : graph_.ops) {
      if (const auto same = simpler(op)) {
        rewrite_.replace(op.results[0], *same);
      } else {
        rewrite_.copy(op, rewritten_body(op, simplify));
      }
      note_makers();
    }
    return std::move(rewrite_).finish();
  }

 private:
  // The operation in the new graph that makes a value of it.
  const Node* maker(ValueId now) const {
    const bool made = now < maker_.size() && maker_[now] != kNone;
    return made ? &rewrite_.graph().ops[maker_[now]] : nullptr;
  }

  void note_makers() {
    const Graph& now = rewrite_.graph();
    maker_.resize(now.types.size(), kNone);
    for (; noted_ < now.ops.size(); ++noted_)
      for (const ValueId result : now.ops[noted_].results) maker_[result] = noted_;
  }

  std::optional<double> constant(ValueId now) const {
    const Node* op = maker(now);
    if (op == nullptr || op->kind != OpKind::constant) return std::nullopt;
    return op->attributes.get<double>("value");
  }
  bool is(ValueId now, double value) const { return constant(now) == value; }

  ValueId make_constant(double value, const Type& type, const std::string& at) {
    return rewrite_.make(
        {.kind = OpKind::constant, .attributes = {{"value", rounded(value, type.dtype)}}, .at = at},
        &type);
  }

  // The value that stands for its first result, if it need not be computed as it is.
  std::optional<ValueId> simpler(const Node& op) {
    if (op.results.size() != 1) return std::nullopt;
    std::vector<ValueId> in;
    for (const ValueId operand : op.operands) in.push_back(rewrite_(operand));
    if (const auto folded = fold(op, in)) return folded;
    switch (op_class(op.kind)) {
      case OpClass::unary: return simpler_unary(op, in[0]);
      case OpClass::binary: return simpler_binary(op, in[0], in[1]);
      case OpClass::ternary: return in[1] == in[2] ? std::optional(in[1]) : std::nullopt;
      case OpClass::shape: return simpler_shape(op, in);
      case OpClass::reduce:
        if ((op.kind == OpKind::reduce_sum || op.kind == OpKind::reduce_max) &&
            op.attributes.get<Names>("dims").empty())
          return in[0];
        return std::nullopt;
      default: return std::nullopt;
    }
  }

  // Of constants, a constant.
  std::optional<ValueId> fold(const Node& op, const std::vector<ValueId>& in) {
    const Type& type = graph_.type(op.results[0]);
    if (in.empty() || op_class(op.kind) == OpClass::source) return std::nullopt;
    for (const ValueId operand : in)
      if (!constant(operand)) return std::nullopt;
    if (is_elementwise(op.kind)) return fold_one(op, in, type);
    switch (op.kind) {
      case OpKind::reshape:
      case OpKind::transpose:
      case OpKind::broadcast:
      case OpKind::slice:
      case OpKind::reduce_max: return make_constant(*constant(in[0]), type, op.at);
      case OpKind::reduce_sum: {
        const int64_t each = graph_.type(op.operands[0]).elements() / type.elements();
        return make_constant(*constant(in[0]) * static_cast<double>(each), type, op.at);
      }
      default: return std::nullopt;
    }
  }

  std::optional<ValueId> fold_one(const Node& op, const std::vector<ValueId>& in,
                                  const Type& type) {
    Graph one;
    Node scalar{.kind = op.kind, .attributes = op.attributes};
    std::vector<Array> values;
    for (const ValueId operand : in) {
      const Type number{rewrite_.graph().type(operand).dtype, {}};
      scalar.operands.push_back(one.add_input(std::to_string(values.size()), number));
      values.push_back({number, {*constant(operand)}});
    }
    const Type number{type.dtype, {}};
    const auto added = one.add(std::move(scalar), &number);
    if (!added) return std::nullopt;
    one.add_output("y", added->front());
    const auto result = interpret(one, std::move(values));
    if (!result) return std::nullopt;
    return make_constant(result->front().values[0], type, op.at);
  }

  std::optional<ValueId> simpler_unary(const Node& op, ValueId x) {
    const Node* before = maker(x);
    if (op.kind == OpKind::cast && graph_.type(op.results[0]) == rewrite_.graph().type(x)) return x;
    if (before == nullptr || before->kind != op.kind) return std::nullopt;
    if (op.kind == OpKind::neg || op.kind == OpKind::logical_not) return before->operands[0];
    if (op.kind == OpKind::abs || op.kind == OpKind::floor || op.kind == OpKind::sign) return x;
    return std::nullopt;
  }

  std::optional<ValueId> simpler_binary(const Node& op, ValueId a, ValueId b) {
    const auto negated = [&](ValueId value) -> std::optional<ValueId> {
      const Node* before = maker(value);
      if (before == nullptr || before->kind != OpKind::neg) return std::nullopt;
      return before->operands[0];
    };
    const auto make = [&](OpKind kind, std::vector<ValueId> operands) {
      return rewrite_.make({.kind = kind, .operands = std::move(operands), .at = op.at});
    };
    switch (op.kind) {
      case OpKind::add:
        // -0 + 0 is 0: the sum with 0 may differ in the sign of 0, which nothing here looks at.
        if (is(b, 0)) return a;
        if (is(a, 0)) return b;
        if (const auto x = negated(b)) return make(OpKind::sub, {a, *x});
        if (const auto x = negated(a)) return make(OpKind::sub, {b, *x});
        return std::nullopt;
      case OpKind::sub:
        if (is(b, 0)) return a;
        if (is(a, 0)) return make(OpKind::neg, {b});
        if (const auto x = negated(b)) return make(OpKind::add, {a, *x});
        return std::nullopt;
      case OpKind::mul:
        if (is(b, 1)) return a;
        if (is(a, 1)) return b;
        if (is(b, -1)) return make(OpKind::neg, {a});
        if (is(a, -1)) return make(OpKind::neg, {b});
        return std::nullopt;
      case OpKind::div:
      case OpKind::pow: return is(b, 1) ? std::optional(a) : std::nullopt;
      case OpKind::maximum:
      case OpKind::minimum:
      case OpKind::logical_and:
      case OpKind::logical_or: return a == b ? std::optional(a) : std::nullopt;
      default: return std::nullopt;
    }
  }

  std::optional<ValueId> simpler_shape(const Node& op, const std::vector<ValueId>& in) {
    const Type& type = graph_.type(op.results[0]);
    if (in.size() == 1 && rewrite_.graph().type(in[0]) == type) return in[0];
    const Node* before = in.size() == 1 ? maker(in[0]) : nullptr;
    if (before == nullptr || before->kind != op.kind) return std::nullopt;
    const ValueId source = before->operands[0];
    const bool same = op.kind == OpKind::reshape || op.kind == OpKind::broadcast;
    if (!same && op.kind != OpKind::transpose) return std::nullopt;
    if (rewrite_.graph().type(source) == type) return source;
    return rewrite_.make(
        {.kind = op.kind, .operands = {source}, .attributes = op.attributes, .at = op.at},
        same ? &type : nullptr);
  }

  static constexpr size_t kNone = ~size_t{0};

  const Graph& graph_;
  Rewrite rewrite_;
  std::vector<size_t> maker_;  // by value of the new graph
  size_t noted_ = 0;
};

}  // namespace

Graph simplify(const Graph& graph) { return Simplifier(graph).run(); }

}  // namespace tutti
