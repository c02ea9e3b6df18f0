#include "train/step_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "compile/autodiff.h"

namespace tutti {
namespace {

// Added to the norm before something is divided by it, as PyTorch does.
constexpr double kNormEpsilon = 1e-6;
constexpr int64_t kMostAtoms = 1 << 20;  // a step's program grows with them

// What a step's gradients are, whatever they were made of.
struct Gradients {
  Tensor loss;
  std::vector<Tensor> of;  // of each parameter
};

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

// The gradients of one atom, as outputs of the builder's graph until now.
Gradients take_gradients(Builder& b, const Model& model) {
  Gradients found{.loss = b.tensor(b.graph().output("loss")->value), .of = {}};
  for (const Parameter& parameter : model.parameters)
    found.of.push_back(b.tensor(b.graph().output(gradient_name(parameter.name))->value));
  b.graph().outputs.clear();
  return found;
}

// A round of the repeat over atoms: inputs are the sums until now, the atom's data, then the
// states; outputs the sums with this atom's.
Result<std::shared_ptr<const Graph>> atom_body(Graph differentiated, const Model& model) {
  std::vector<Input> given = std::move(differentiated.inputs);
  differentiated.inputs.clear();
  Builder b(std::move(differentiated));
  const Gradients atom = take_gradients(b, model);
  std::vector<Tensor> added;
  const auto add = [&](const Tensor& value) {
    const Tensor sum = b.input(fmt::format("sum{}", added.size()), value.type());
    added.push_back(sum + value);
  };
  add(atom.loss);
  for (const Tensor& gradient : atom.of) add(gradient);
  for (size_t i = 0; i < added.size(); ++i) b.output(fmt::format("carried{}", i), added[i]);
  std::ranges::stable_partition(given, [](const Input& in) { return in.role == InputRole::data; });
  for (Input& input : given) {
    input.role = InputRole::data;
    b.graph().inputs.push_back(std::move(input));
  }
  TRY(Graph body, b.build());
  return std::make_shared<const Graph>(std::move(body));
}

std::vector<Tensor> atoms_data(Builder& b, const Model& model, int64_t atoms) {
  std::vector<Tensor> data;
  for (const Input& input : model.graph.inputs) {
    if (input.role != InputRole::data) continue;
    Type type = model.graph.type(input.value);
    type.dims.insert(type.dims.begin(), {"atom", atoms});
    data.push_back(b.input(input.name, std::move(type)));
  }
  return data;
}

Gradients fold_atoms(Builder& b, const Model& model, std::shared_ptr<const Graph> body,
                     int64_t atoms) {
  const std::vector<Tensor> data = atoms_data(b, model, atoms);
  std::vector<Tensor> all{b.constant(0, {DType::f32, {}})};
  for (const Parameter& parameter : model.parameters) all.push_back(b.constant(0, parameter.type));
  const auto carried = static_cast<int64_t>(all.size());
  all.insert(all.end(), data.begin(), data.end());
  for (const Input& input : model.graph.inputs)
    if (input.role == InputRole::state)
      all.push_back(b.state(input.name, model.graph.type(input.value)));
  const auto sums = b.add(OpKind::repeat, all,
                          {{"count", atoms},
                           {"carried", carried},
                           {"sliced", static_cast<int64_t>(data.size())},
                           {"stack", "atom"},
                           {"reversed", false}},
                          nullptr, std::move(body));
  if (sums.empty()) return {};
  return {.loss = sums[0] * (1.0 / static_cast<double>(atoms)),
          .of = {sums.begin() + 1, sums.end()}};
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
  if (options.atoms < 1 || options.atoms > kMostAtoms)
    return fail(Code::invalid, "{} atoms in a step; use 1 to {}", options.atoms, kMostAtoms);
  TRY(Graph differentiated,
      differentiate(with_loss_alone(model.graph), "loss", parameter_names(model)));
  if (options.atoms == 1) {
    Builder b(std::move(differentiated));
    const Gradients gradients = take_gradients(b, model);
    add_optimizer(b, model, gradients, options);
    return b.build();
  }
  TRY(auto body, atom_body(std::move(differentiated), model));
  Builder b(model.graph.name);
  const Gradients gradients = fold_atoms(b, model, std::move(body), options.atoms);
  if (b.error()) return fail(*b.error());
  add_optimizer(b, model, gradients, options);
  return b.build();
}

Result<Graph> evaluation_step(const Model& model) {
  TRY_DO(check_model(model));
  return with_loss_alone(model.graph);
}

}  // namespace tutti
