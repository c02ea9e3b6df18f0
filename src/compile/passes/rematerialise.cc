#include "compile/passes/rematerialise.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "compile/flops.h"
#include "compile/passes/passes.h"
#include "compile/rewrite.h"

namespace tutti {
namespace {

// A forward repeat and the one that goes back over its rounds.
struct Pair {
  const Node& forward;
  const Node& backward;
  RepeatShape shape;
  RepeatShape back_shape;

  Pair(const Node& f, const Node& b)
      : forward(f), backward(b), shape(repeat_shape(f)), back_shape(repeat_shape(b)) {}

  // Where the gradient's rounds see a part of this value.
  std::optional<size_t> sliced(ValueId value) const {
    for (size_t i = 0; i < back_shape.sliced; ++i)
      if (backward.operands[back_shape.carried + i] == value) return back_shape.carried + i;
    return std::nullopt;
  }
};

// How a value of the forward body is had in a round of the gradient: what it takes from there, and
// what is to be computed.
struct Recipe {
  Graph graph;
  std::vector<ValueId> inputs;  // values of the forward body, for the graph's inputs
};

class Cook {
 public:
  Cook(const Pair& pair, size_t result)
      : pair_(pair), body_(*pair.forward.body), makers_(makers(body_)), result_(result) {
    for (size_t i = 0; i < body_.inputs.size(); ++i) place_[body_.inputs[i].value] = i;
  }

  // Nothing if it takes something that is carried and not kept, or that ranks have to meet for:
  // they may have different memory, and choose differently.
  std::optional<Recipe> run() {
    const ValueId wanted = body_.outputs[result_].value;
    if (makers_[wanted] == nullptr || !visit(wanted)) return std::nullopt;
    Recipe recipe;
    std::map<ValueId, ValueId> here;
    for (const ValueId value : taken_) {
      here[value] =
          recipe.graph.add_input(fmt::format("in{}", recipe.inputs.size()), body_.type(value));
      recipe.inputs.push_back(value);
    }
    for (const size_t i : computed_) {
      const Node& op = body_.ops[i];
      Node copied{.kind = op.kind, .attributes = op.attributes, .body = op.body, .at = op.at};
      for (const ValueId operand : op.operands) copied.operands.push_back(here.at(operand));
      for (const ValueId value : op.results)
        copied.results.push_back(here[value] = recipe.graph.add_value(body_.type(value)));
      recipe.graph.ops.push_back(std::move(copied));
    }
    recipe.graph.add_output("out", here.at(wanted));
    return recipe;
  }

  // The part of an operand of the forward repeat that a body's input is, if it is one.
  std::optional<size_t> operand_of(ValueId value) const {
    const auto input = place_.find(value);
    if (input == place_.end() || input->second < pair_.shape.carried) return std::nullopt;
    return input->second;
  }

  // The kept result that a value of the body is; not the one that is to be computed again.
  std::optional<size_t> kept_as(ValueId value) const {
    for (size_t i = pair_.shape.carried; i < body_.outputs.size(); ++i)
      if (i != result_ && body_.outputs[i].value == value && pair_.sliced(pair_.forward.results[i]))
        return i;
    return std::nullopt;
  }

 private:
  bool visit(ValueId value) {
    if (std::ranges::count(taken_, value) != 0) return true;
    if (kept_as(value) || operand_of(value)) {
      taken_.push_back(value);
      return true;
    }
    const Node* op = makers_[value];
    if (op == nullptr) return false;  // carried
    if (op_class(op->kind) == OpClass::collective && op->kind != OpKind::own_slice) return false;
    if (!computed_.insert(static_cast<size_t>(op - body_.ops.data())).second) return true;
    return std::ranges::all_of(op->operands, [&](ValueId operand) { return visit(operand); });
  }

  const Pair& pair_;
  const Graph& body_;
  std::vector<const Node*> makers_;
  std::map<ValueId, size_t> place_;
  size_t result_;
  std::vector<ValueId> taken_;
  std::set<size_t> computed_;  // operations, in order
};

double work_of(const Graph& graph) {
  double all = flops_of(graph);
  for (const Node& op : graph.ops)
    for (const ValueId value : op.results)
      if (op_class(op.kind) != OpClass::shape)
        all += static_cast<double>(graph.type(value).elements());
  return all;
}

std::string free_name(const Graph& graph) {
  size_t i = 0;
  while (graph.input(fmt::format("again{}", i)) != nullptr) ++i;
  return fmt::format("again{}", i);
}

// The gradient's repeat with the value computed in every round, from parts that it may have to be
// given besides. The one it was given is not used any more.
Node recomputing(const Pair& pair, size_t result) {
  Cook cook(pair, result);
  const auto recipe = cook.run();
  const Graph& body = *pair.backward.body;
  Rewrite rewrite(body);
  Node wider = pair.backward;
  auto sliced = static_cast<ptrdiff_t>(pair.back_shape.carried + pair.back_shape.sliced);
  const auto given = sliced;
  std::vector<ValueId> inputs;
  for (const ValueId value : recipe->inputs) {
    const auto kept = cook.kept_as(value);
    const size_t operand = kept ? 0 : *cook.operand_of(value);
    const ValueId outer = kept ? pair.forward.results[*kept] : pair.forward.operands[operand];
    if (const auto known = pair.sliced(outer);
        known && (kept || operand < pair.shape.carried + pair.shape.sliced)) {
      inputs.push_back(rewrite(body.inputs[*known].value));
      continue;
    }
    auto& all = rewrite.graph().inputs;
    inputs.push_back(
        rewrite.graph().add_input(free_name(rewrite.graph()), pair.forward.body->type(value)));
    if (operand < pair.shape.carried + pair.shape.sliced) {
      std::rotate(all.begin() + sliced, all.end() - 1, all.end());
      wider.operands.insert(wider.operands.begin() + sliced++, outer);
    } else {
      wider.operands.push_back(outer);
    }
  }
  const size_t place = *pair.sliced(pair.forward.results[result]);
  rewrite.replace(body.inputs[place].value,
                  rewrite.insert(recipe->graph, inputs, recipe->graph.ops.back().at).front());
  for (const Node& op : body.ops) rewrite.copy(op);
  wider.body = std::make_shared<const Graph>(std::move(rewrite).finish());
  wider.attributes.set("sliced", static_cast<int64_t>(pair.back_shape.sliced) + (sliced - given));
  return wider;
}

void find_in(const Graph& graph, const std::vector<size_t>& path,
             std::vector<Recomputation>& found) {
  const auto uses = use_counts(graph);
  for (size_t f = 0; f < graph.ops.size(); ++f) {
    const Node& forward = graph.ops[f];
    if (forward.kind != OpKind::repeat) continue;
    std::vector<size_t> inside = path;
    inside.push_back(f);
    find_in(*forward.body, inside, found);
    for (size_t b = f + 1; b < graph.ops.size(); ++b) {
      if (graph.ops[b].kind != OpKind::repeat) continue;
      const Pair pair(forward, graph.ops[b]);
      if (pair.shape.count != pair.back_shape.count) continue;
      for (size_t i = pair.shape.carried; i < forward.results.size(); ++i) {
        const ValueId value = forward.results[i];
        if (!pair.sliced(value) || uses[value] != 1) continue;
        const auto recipe = Cook(pair, i).run();
        if (!recipe) continue;
        const Node& last = recipe->graph.ops.back();
        found.push_back({.path = path,
                         .forward = f,
                         .result = i,
                         .backward = b,
                         .bytes = graph.type(value).bytes(),
                         .work = work_of(recipe->graph) * static_cast<double>(pair.shape.count),
                         .text = fmt::format("{}{}{}: {}", op_info(last.kind).name,
                                             last.at.empty() ? "" : " of ", last.at,
                                             graph.type(value).text())});
      }
    }
  }
}

Graph rematerialise_in(const Graph& graph, const Recomputation& what, size_t depth) {
  Rewrite rewrite(graph);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Node& op = graph.ops[i];
    if (depth < what.path.size() && i == what.path[depth]) {
      rewrite.copy(op, std::make_shared<const Graph>(rematerialise_in(*op.body, what, depth + 1)));
    } else if (depth == what.path.size() && i == what.backward) {
      rewrite.copy(recomputing(Pair(graph.ops[what.forward], op), what.result));
    } else {
      rewrite.copy(op);
    }
  }
  return std::move(rewrite).finish();
}

}  // namespace

std::vector<Recomputation> find_recomputations(const Graph& graph) {
  std::vector<Recomputation> found;
  find_in(graph, {}, found);
  std::ranges::stable_sort(found, std::greater(), [](const Recomputation& each) {
    return static_cast<double>(each.bytes) / std::max(each.work, 1.0);
  });
  return found;
}

Graph rematerialise(const Graph& graph, const Recomputation& what) {
  return remove_unused(rematerialise_in(graph, what, 0));
}

}  // namespace tutti
