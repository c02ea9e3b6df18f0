#include "train/step_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "compile/autodiff.h"
#include "train/lane_fold.h"

namespace tutti {
namespace {

// Added to the norm before something is divided by it, as PyTorch does.
constexpr double kNormEpsilon = 1e-6;
constexpr int64_t kMostAtoms = 1 << 20;  // a step's program grows with them

Result<void> check_model(const Model& model) {
  const Output* loss = model.graph.output("loss");
  if (loss == nullptr)
    return fail(Code::invalid, "model {} has no output \"loss\" to train for", model.graph.name);
  for (const Parameter& parameter : model.parameters) {
    const Input* input = model.graph.input(parameter.name);
    if (input == nullptr || input->role != InputRole::state)
      return fail(Code::invalid, "parameter {} is no state of model {}", parameter.name,
                  model.graph.name);
    if (parameter.type.dtype != DType::f32)
      return fail(Code::unsupported, "parameter {} is {}; only f32 is trained", parameter.name,
                  parameter.type.text());
  }
  if (model.parameters.empty())
    return fail(Code::invalid, "model {} has no parameters to train", model.graph.name);
  return {};
}

Names parameter_names(const Model& model) {
  Names names;
  for (const Parameter& parameter : model.parameters) names.push_back(parameter.name);
  return names;
}

Graph with_loss_alone(Graph graph) {
  std::erase_if(graph.outputs, [](const Output& output) { return output.name != "loss"; });
  return graph;
}

// Small gradients are summed with all workers as one tensor: a call costs more than they do.
constexpr int64_t kSmallElements = 16'384;

// The sums over all lanes: alone there is nothing to do but to look at them.
Gradients sum_over_workers(Builder& b, const std::vector<Gradients>& nodes,
                           const LaneFoldOptions& lanes) {
  if (lanes.own.count == lanes.lanes) return nodes[0];
  const Attributes attributes = lane_attributes(lanes);
  const auto flat = [&](const Tensor& x) {
    return b.reshape(x, {{"element", x.type().elements()}});
  };
  const auto reduced = [&](const std::vector<Tensor>& parts) {
    const auto made = b.add(OpKind::lane_all_reduce, parts, attributes);
    return made.empty() ? Tensor() : made[0];
  };
  std::vector<std::vector<Tensor>> all;  // of each node
  for (const Gradients& node : nodes) all.push_back(node.all());
  std::vector<Tensor> sums(all[0].size());
  std::vector<size_t> small;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (all[0][i].type().elements() <= kSmallElements) {
      small.push_back(i);
      continue;
    }
    std::vector<Tensor> parts;
    for (const auto& node : all) parts.push_back(node[i]);
    sums[i] = reduced(parts);
  }
  std::vector<Tensor> joined;
  for (const auto& node : all) {
    std::vector<Tensor> parts;
    for (const size_t i : small) parts.push_back(flat(node[i]));
    joined.push_back(b.concat(parts, "element"));
  }
  const Tensor together = reduced(joined);
  int64_t start = 0;
  for (const size_t i : small) {
    const Type type = all[0][i].type();  // which moves as the graph grows
    sums[i] = b.reshape(b.slice(together, "element", start, type.elements()), type.dims);
    start += type.elements();
  }
  return {.loss = sums[0], .of = {sums.begin() + 1, sums.end()}};
}

Result<void> check_lanes(const StepOptions& options) {
  if (options.atoms < 1 || options.atoms > kMostAtoms)
    return fail(Code::invalid, "{} atoms in a step; use 1 to {}", options.atoms, kMostAtoms);
  if (options.lanes < 1 || options.lanes > kMostLanes)
    return fail(Code::invalid, "{} lanes; use 1 to {}", options.lanes, kMostLanes);
  if (options.atoms % options.lanes != 0)
    return fail(Code::invalid,
                "{} atoms cannot be dealt to {} lanes evenly; use as many lanes as divide them",
                options.atoms, options.lanes);
  const LaneRange own = options.own_lanes;
  if (own.count < 1 || own.first + own.count > options.lanes)
    return fail(Code::invalid, "lanes {} to {} are not among {}", own.first,
                own.first + own.count - 1, options.lanes);
  return {};
}

void add_optimizer(Builder& b, const Model& model, const Gradients& gradients,
                   const StepOptions& options) {
  b.at("");
  const double share = 1.0 / static_cast<double>(options.atoms);
  const Tensor norm = b.unary(OpKind::sqrt, b.squared_norm(gradients.of)) * share;
  const Tensor rate = b.input("rate", {DType::f32, {}});
  const Tensor step = b.input("step", {DType::i64, {}});
  Tensor scale = b.constant(share, norm.type());
  if (options.max_norm > 0)
    scale = b.binary(OpKind::minimum, options.max_norm / (norm + kNormEpsilon),
                     b.constant(1, norm.type())) *
            share;
  b.output("loss", gradients.loss);
  b.output("norm", norm);
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = model.parameters[i];
    AdamWOptions adamw = options.adamw;
    if (!parameter.decay) adamw.decay = 0;
    const std::string first = first_moment_name(parameter.name);
    const std::string second = second_moment_name(parameter.name);
    const Tensor weight = b.tensor(b.graph().input(parameter.name)->value);
    const Tensor old_first = b.state(first, parameter.type);
    const Tensor old_second = b.state(second, parameter.type);
    const auto next =
        b.adamw(weight, old_first, old_second, gradients.of[i], scale, rate, step, adamw);
    if (next.empty()) return;
    b.output(parameter.name, next[0]);
    b.output(first, next[1]);
    b.output(second, next[2]);
  }
}

}  // namespace

std::string first_moment_name(std::string_view parameter) {
  return fmt::format("first/{}", parameter);
}
std::string second_moment_name(std::string_view parameter) {
  return fmt::format("second/{}", parameter);
}

Result<Graph> training_step(const Model& model, const StepOptions& options) {
  TRY_DO(check_model(model));
  TRY_DO(check_lanes(options));
  TRY(Graph differentiated,
      differentiate(with_loss_alone(model.graph), "loss", parameter_names(model)));
  if (options.atoms == 1) {
    Builder b(std::move(differentiated));
    const Gradients gradients = take_gradients(b, model);
    add_optimizer(b, model, gradients, options);
    return b.build();
  }
  const LaneFoldOptions lanes{.lanes = options.lanes,
                              .own = options.own_lanes,
                              .atoms_of_lane = options.atoms / options.lanes};
  Builder b(model.graph.name);
  TRY(const std::vector<Gradients> nodes, fold_lanes(b, model, differentiated, lanes));
  Gradients gradients = sum_over_workers(b, nodes, lanes);
  if (b.error()) return fail(*b.error());
  gradients.loss = gradients.loss * (1.0 / static_cast<double>(options.atoms));
  add_optimizer(b, model, gradients, options);
  return b.build();
}

Result<Graph> evaluation_step(const Model& model) {
  TRY_DO(check_model(model));
  return with_loss_alone(model.graph);
}

}  // namespace tutti
