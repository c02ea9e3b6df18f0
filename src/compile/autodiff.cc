#include "compile/autodiff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "compile/gradient_rules.h"

namespace tutti {
namespace {

using Tensors = std::vector<Tensor>;

// Which values change when the marked inputs do.
std::vector<bool> dependent(const Graph& graph, std::vector<bool> marked) {
  marked.resize(graph.types.size());
  for (const Node& op : graph.ops)
    if (std::ranges::any_of(op.operands, [&](ValueId operand) { return marked[operand]; }))
      for (const ValueId result : op.results) marked[result] = is_float(graph.type(result).dtype);
  return marked;
}

bool is_had_for_nothing(OpKind kind) {
  return kind == OpKind::constant || kind == OpKind::iota || kind == OpKind::reshape ||
         kind == OpKind::transpose || kind == OpKind::broadcast || kind == OpKind::slice;
}

// Goes back over the operations that a builder's graph has, adding those of the gradients.
class Differentiator {
 public:
  Differentiator(Builder& builder, std::vector<bool> active)
      : b_(builder),
        ops_(builder.graph().ops.size()),
        active_(std::move(active)),
        adjoints_(active_.size()) {}

  void seed(ValueId value, const Tensor& adjoint) { accumulate(value, adjoint); }
  const Tensor& adjoint(ValueId value) const { return adjoints_[value]; }

  Result<void> run() {
    for (size_t i = ops_; i-- > 0;) {
      const Node op = b_.graph().ops[i];  // a copy: the list grows
      const bool reached =
          std::ranges::any_of(op.results, [&](ValueId result) { return bool(adjoints_[result]); });
      if (!reached) continue;
      b_.at(op.at);
      auto done = op.kind == OpKind::repeat ? go_back_over_repeat(i) : go_back_over(op);
      if (!done) return fail(op.at.empty() ? std::move(done).error() : done.error().context(op.at));
    }
    return {};
  }

 private:
  void accumulate(ValueId value, const Tensor& adjoint) {
    Tensor& sum = adjoints_[value];
    sum = sum ? sum + adjoint : adjoint;
  }

  Tensor zeros_like(ValueId value) { return b_.constant(0, b_.type_of(value)); }

  Result<void> go_back_over(const Node& op) {
    GradientCall call{.builder = b_, .op = op};
    for (const ValueId operand : op.operands) {
      call.operands.push_back(b_.tensor(operand));
      call.wanted.push_back(active_[operand]);
    }
    for (const ValueId result : op.results) {
      call.results.push_back(b_.tensor(result));
      call.adjoints.push_back(adjoints_[result]);
    }
    // Rules speak of the first result; of one that only others depend on it changes by nothing.
    if (!call.adjoints[0]) call.adjoints[0] = zeros_like(op.results[0]);
    TRY(const Tensors gradients, operand_gradients(call));
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i]) accumulate(op.operands[i], gradients[i]);
    return {};
  }

  Result<void> go_back_over_repeat(size_t index);

  Builder& b_;
  size_t ops_;  // that were there at first
  std::vector<bool> active_;
  std::vector<Tensor> adjoints_;  // of the values that were there at first
};

// A repeat's body with its gradients behind it, and how the two are parted.
//
// The rounds of the gradient go the other way. Of each round they need what its forward operations
// left (`kept`, stacked by the forward repeat from then on), its parts and what all rounds share.
class RepeatGradient {
 public:
  RepeatGradient(Builder& outer, const Node& op, const std::vector<bool>& active,
                 const std::vector<Tensor>& adjoints)
      : outer_(outer), op_(op), shape_(repeat_shape(op)), body_(*op.body), adjoints_(adjoints) {
    for (const ValueId operand : op.operands) active_.push_back(active[operand]);
  }

  Result<void> run() {
    spread_activity();
    Builder both(body_);
    TRY(both_, go_back(both));
    find_forward();
    find_kept();
    for (size_t i = 0; i < kept_.size(); ++i)
      forward_.add_output(fmt::format("kept{}", i), kept_[i]);
    build_backward();
    return {};
  }

  size_t kept() const { return kept_.size(); }
  const Graph& forward() const { return forward_; }
  // Adds the backward repeat; `stacks` are the forward one's results that keep. The gradients of
  // the operands, empty where there are none.
  Tensors add_backward(const Tensors& stacks);

 private:
  size_t operands() const { return op_.operands.size(); }
  bool is_carried(size_t i) const { return i < shape_.carried; }
  bool is_sliced(size_t i) const { return !is_carried(i) && i < shape_.carried + shape_.sliced; }
  ValueId input(size_t i) const { return body_.inputs[i].value; }

  // A carried value is active from the start if it is after a round.
  void spread_activity() {
    for (bool changed = true; changed;) {
      changed = false;
      std::vector<bool> marked(body_.types.size());
      for (size_t i = 0; i < operands(); ++i) marked[input(i)] = active_[i];
      inside_ = dependent(body_, std::move(marked));
      for (size_t i = 0; i < shape_.carried; ++i) {
        if (active_[i] || !inside_[body_.outputs[i].value]) continue;
        active_[i] = changed = true;
      }
    }
  }

  // The body, its adjoints as further inputs, and its gradients as the only outputs.
  Result<Graph> go_back(Builder& both) {
    Differentiator back(both, inside_);
    for (size_t i = 0; i < body_.outputs.size(); ++i) {
      const ValueId value = body_.outputs[i].value;
      const bool wanted = is_carried(i) ? active_[i] : bool(adjoints_[op_.results[i]]);
      if (!wanted) continue;
      const Tensor adjoint =
          both.input(fmt::format("d{}", body_.outputs[i].name), body_.type(value));
      from_outside_[i] = both.id(adjoint);
      back.seed(value, adjoint);
    }
    TRY_DO(back.run());
    for (size_t i = 0; i < operands(); ++i) {
      if (!active_[i]) continue;
      Tensor gradient = back.adjoint(input(i));
      if (!gradient) gradient = both.constant(0, body_.type(input(i)));
      gradients_[i] = both.id(gradient);
    }
    return both.build();
  }

  // A repeat within the body has got more results by now.
  void find_forward() {
    const auto ops = static_cast<ptrdiff_t>(body_.ops.size());
    forward_ = both_;
    forward_.inputs = body_.inputs;
    forward_.ops.erase(forward_.ops.begin() + ops, forward_.ops.end());
    forward_.outputs = body_.outputs;
    is_forward_.resize(both_.types.size());
    for (const Input& in : forward_.inputs) is_forward_[in.value] = true;
    for (const Node& op : forward_.ops)
      for (const ValueId result : op.results) is_forward_[result] = true;
  }

  bool is_input(ValueId value) const {
    return std::ranges::any_of(body_.inputs, [&](const Input& in) { return in.value == value; });
  }

  // Forward values that the gradients use, but for parts and what is shared, which are there
  // anyway.
  void find_kept() {
    std::vector<bool> used(both_.types.size());
    for (size_t i = forward_.ops.size(); i < both_.ops.size(); ++i)
      for (const ValueId operand : both_.ops[i].operands) used[operand] = true;
    for (const auto& [operand, gradient] : gradients_) used[gradient] = true;
    // What is only looked at in another way is looked at again, and what is made of nothing is made
    // again: neither is worth keeping.
    for (size_t i = forward_.ops.size(); i-- > 0;) {
      const Node& op = forward_.ops[i];
      if (!is_had_for_nothing(op.kind) || !used[op.results[0]]) continue;
      again_.push_back(i);
      used[op.results[0]] = false;
      for (const ValueId operand : op.operands) used[operand] = true;
    }
    std::ranges::reverse(again_);
    for (ValueId value = 0; value < both_.types.size(); ++value) {
      if (!is_forward_[value]) continue;
      const bool carried_in = std::ranges::any_of(std::views::iota(size_t{0}, shape_.carried),
                                                  [&](size_t i) { return input(i) == value; });
      if (used[value] && (carried_in || !is_input(value))) kept_.push_back(value);
    }
  }

  // Inputs: adjoints of the carried, sums for what is shared; kept, parts, adjoints of the stacked;
  // then what is shared.
  void build_backward() {
    Graph& graph = backward_;
    graph.name = "body";
    std::map<ValueId, ValueId> here;
    const auto take = [&](const std::string& name, ValueId value) {
      here[value] = graph.add_input(name, both_.type(value));
    };
    std::map<size_t, ValueId> sums;
    for (size_t i = 0; i < shape_.carried; ++i)
      if (active_[i]) take(fmt::format("d{}", body_.outputs[i].name), from_outside_[i]);
    for (size_t i = shape_.carried + shape_.sliced; i < operands(); ++i)
      if (active_[i])
        sums[i] = graph.add_input(fmt::format("d{}", body_.inputs[i].name), body_.type(input(i)));
    for (size_t i = 0; i < kept_.size(); ++i) take(fmt::format("kept{}", i), kept_[i]);
    for (size_t i = 0; i < operands(); ++i)
      if (is_sliced(i)) take(body_.inputs[i].name, input(i));
    for (size_t i = shape_.carried; i < body_.outputs.size(); ++i)
      if (from_outside_.contains(i))
        take(fmt::format("d{}", body_.outputs[i].name), from_outside_[i]);
    for (size_t i = shape_.carried + shape_.sliced; i < operands(); ++i)
      take(body_.inputs[i].name, input(i));
    std::vector<size_t> ops = again_;
    for (size_t i = forward_.ops.size(); i < both_.ops.size(); ++i) ops.push_back(i);
    for (const size_t i : ops) {
      Node op = both_.ops[i];
      for (ValueId& operand : op.operands) operand = here.at(operand);
      for (ValueId& result : op.results)
        result = here[result] = graph.add_value(both_.type(result));
      graph.ops.push_back(std::move(op));
    }
    Builder builder(std::move(graph));
    for (const auto& [i, gradient] : gradients_) {
      Tensor out = builder.tensor(here.at(gradient));
      const auto sum = sums.find(i);
      if (sum != sums.end()) out = builder.tensor(sum->second) + out;
      if (!is_sliced(i)) builder.output(fmt::format("d{}", body_.inputs[i].name), out);
    }
    for (const auto& [i, gradient] : gradients_)
      if (is_sliced(i))
        builder.output(fmt::format("d{}", body_.inputs[i].name), builder.tensor(here.at(gradient)));
    backward_ = *builder.build();
  }

  Builder& outer_;
  const Node op_;
  RepeatShape shape_;
  const Graph& body_;
  const std::vector<Tensor>& adjoints_;  // of the outer graph's values
  std::vector<bool> active_;             // operands
  std::vector<bool> inside_;             // values of the body
  Graph both_;
  std::vector<bool> is_forward_;            // values of both_
  std::map<size_t, ValueId> from_outside_;  // the adjoint of an output of the body, in both_
  std::map<size_t, ValueId> gradients_;     // of an operand, in both_
  std::vector<size_t> again_;  // forward operations that the gradients' rounds do again
  std::vector<ValueId> kept_;
  Graph forward_;
  Graph backward_;
};

Tensors RepeatGradient::add_backward(const Tensors& stacks) {
  Tensors carried;
  Tensors sliced = stacks;
  Tensors shared;
  std::vector<size_t> order;  // the operand that each result is the gradient of
  const auto adjoint_of = [&](size_t i) {
    const Tensor& known = adjoints_[op_.results[i]];
    return known ? known : outer_.constant(0, outer_.type_of(op_.results[i]));
  };
  for (size_t i = 0; i < shape_.carried; ++i) {
    if (!active_[i]) continue;
    carried.push_back(adjoint_of(i));
    order.push_back(i);
  }
  for (size_t i = shape_.carried; i < operands(); ++i) {
    const Tensor operand = outer_.tensor(op_.operands[i]);
    if (is_sliced(i)) {
      sliced.push_back(operand);
      continue;
    }
    shared.push_back(operand);
    if (!active_[i]) continue;
    carried.push_back(outer_.constant(0, operand.type()));
    order.push_back(i);
  }
  for (size_t i = 0; i < operands(); ++i)
    if (is_sliced(i) && active_[i]) order.push_back(i);
  for (size_t i = shape_.carried; i < body_.outputs.size(); ++i)
    if (from_outside_.contains(i)) sliced.push_back(adjoints_[op_.results[i]]);
  const auto carries = static_cast<int64_t>(carried.size());
  const auto slices = static_cast<int64_t>(sliced.size());
  Tensors all = std::move(carried);
  all.insert(all.end(), sliced.begin(), sliced.end());
  all.insert(all.end(), shared.begin(), shared.end());
  const Tensors made = outer_.add(OpKind::repeat, all,
                                  {{"count", static_cast<int64_t>(shape_.count)},
                                   {"carried", carries},
                                   {"sliced", slices},
                                   {"stack", shape_.stack},
                                   {"reversed", !shape_.reversed}},
                                  nullptr, std::make_shared<const Graph>(std::move(backward_)));
  Tensors gradients(operands());
  for (size_t i = 0; i < made.size(); ++i) {
    // Parts are stacked along a dimension whose name the operand chose.
    const Type& wanted = outer_.type_of(op_.operands[order[i]]);
    gradients[order[i]] = outer_.reshape(made[i], wanted.dims);
  }
  return gradients;
}

Result<void> Differentiator::go_back_over_repeat(size_t index) {
  const Node op = b_.graph().ops[index];
  RepeatGradient gradient(b_, op, active_, adjoints_);
  TRY_DO(gradient.run());
  Node& forward = b_.graph().ops[index];
  forward.body = std::make_shared<const Graph>(gradient.forward());
  Tensors stacks;
  const RepeatShape shape = repeat_shape(op);
  for (size_t i = 0; i < gradient.kept(); ++i) {
    const size_t place = gradient.forward().outputs.size() - gradient.kept() + i;
    Type type = gradient.forward().type(gradient.forward().outputs[place].value);
    type.dims.insert(type.dims.begin(), {shape.stack, static_cast<int64_t>(shape.count)});
    const ValueId stack = b_.graph().add_value(std::move(type));
    forward.results.push_back(stack);
    stacks.push_back(b_.tensor(stack));
  }
  const Tensors gradients = gradient.add_backward(stacks);
  if (b_.error()) return fail(*b_.error());
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i] && active_[op.operands[i]]) accumulate(op.operands[i], gradients[i]);
  return {};
}

}  // namespace

std::string gradient_name(std::string_view input) { return fmt::format("gradient/{}", input); }

Result<Graph> differentiate(Graph graph, const std::string& loss, const Names& inputs) {
  const Output* output = graph.output(loss);
  if (output == nullptr) return fail(Code::not_found, "the graph has no output {}", loss);
  const ValueId of = output->value;
  if (graph.type(of).elements() != 1 || !is_float(graph.type(of).dtype))
    return fail(Code::invalid, "{} is {}: gradients are of a single number; take its mean first",
                loss, graph.type(of).text());
  std::vector<bool> marked(graph.types.size());
  std::vector<ValueId> wanted;
  for (const std::string& name : inputs) {
    const Input* input = graph.input(name);
    if (input == nullptr) return fail(Code::not_found, "the graph has no input {}", name);
    if (!is_float(graph.type(input->value).dtype))
      return fail(Code::invalid, "{} is {}, of which there is no gradient", name,
                  graph.type(input->value).text());
    marked[input->value] = true;
    wanted.push_back(input->value);
  }
  auto active = dependent(graph, std::move(marked));
  Builder builder(std::move(graph));
  Differentiator back(builder, std::move(active));
  back.seed(of, builder.constant(1, builder.type_of(of)));
  TRY_DO(back.run());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor gradient = back.adjoint(wanted[i]);
    if (!gradient) gradient = builder.constant(0, builder.type_of(wanted[i]));
    builder.output(gradient_name(inputs[i]), gradient);
  }
  return builder.build();
}

}  // namespace tutti
