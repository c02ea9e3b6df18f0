#include "train/step_graph.h"

#include <map>

#include "compile/autodiff.h"
#include "compile/graph_fixture_test.h"
#include "compile/passes/passes.h"
#include "compile/program/lower.h"
#include "train/model_fixture_test.h"

using namespace tutti;

namespace {

using Arrays = std::map<std::string, Array>;

Graph step_of(const Model& model, const StepOptions& options) {
  auto graph = training_step(model, options);
  REQUIRE_MESSAGE(graph.has_value(), graph.error().text());
  const auto checked = verify(*graph);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  return *std::move(graph);
}

// Inputs by name; second moments are squares, so at least 0.
Arrays given_to(const Graph& graph, uint64_t seed = 1) {
  Arrays arrays;
  for (const Input& input : graph.inputs) {
    Array array = array_of(graph.type(input.value), seed + arrays.size());
    if (input.name.starts_with("second/"))
      for (double& value : array.values) value = rounded(value * value, DType::f32);
    arrays.emplace(input.name, std::move(array));
  }
  arrays.at("rate").values = {0.125};
  arrays.at("step").values = {3};
  return arrays;
}

Arrays results_of(const Graph& graph, const Arrays& given) {
  std::vector<Array> inputs;
  for (const Input& input : graph.inputs) inputs.push_back(given.at(input.name));
  const auto outputs = run(graph, std::move(inputs));
  Arrays named;
  for (size_t i = 0; i < outputs.size(); ++i) named.emplace(graph.outputs[i].name, outputs[i]);
  return named;
}

// One atom's part of what all were given.
Arrays atom_of(Arrays all, size_t atom) {
  for (const std::string name : {"tokens", "targets"}) {
    Array& array = all.at(name);
    array.type.dims.erase(array.type.dims.begin());
    const auto size = array.type.elements();
    const auto first = array.values.begin() + static_cast<ptrdiff_t>(atom) * size;
    array.values = std::vector<double>(first, first + size);
  }
  return all;
}

}  // namespace

TEST_CASE("a step is the loss, its gradient's norm, and AdamW of each parameter") {
  const Model model = small_model();
  const StepOptions options{.atoms = 1,
                            .max_norm = 0,
                            .adamw = {.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-6, .decay = 0.5}};
  const Graph step = step_of(model, options);
  const Arrays given = given_to(step);
  const Arrays after = results_of(step, given);
  Names names;
  for (const Parameter& parameter : model.parameters) names.push_back(parameter.name);
  const auto gradients = differentiate(model.graph, "loss", names);
  REQUIRE(gradients.has_value());
  const Arrays plain = results_of(*gradients, given);
  check_close(after.at("loss"), plain.at("loss"), 1e-6);
  double squares = 0;
  for (const Parameter& parameter : model.parameters) {
    CAPTURE(parameter.name);
    const Array& weight = given.at(parameter.name);
    Array expected = weight;
    for (size_t i = 0; i < weight.values.size(); ++i) {
      const double gradient = plain.at(gradient_name(parameter.name)).values[i];
      squares += gradient * gradient;
      const double first =
          0.8 * given.at(first_moment_name(parameter.name)).values[i] + 0.2 * gradient;
      const double second =
          0.9 * given.at(second_moment_name(parameter.name)).values[i] + 0.1 * gradient * gradient;
      const double decay = parameter.decay ? 1 - 0.125 * 0.5 : 1;
      expected.values[i] =
          weight.values[i] * decay - 0.125 * (first / (1 - 0.8 * 0.8 * 0.8)) /
                                         (std::sqrt(second / (1 - 0.9 * 0.9 * 0.9)) + 1e-6);
    }
    check_close(after.at(parameter.name), expected, 1e-5);
  }
  CHECK(after.at("norm").values[0] == doctest::Approx(std::sqrt(squares)).epsilon(1e-5));
}

TEST_CASE("atoms are added from the first to the last, to the bit") {
  const Model model = small_model();
  // The first moment of no step and without a memory is the gradient itself.
  const StepOptions options{
      .atoms = 3, .max_norm = 0, .adamw = {.beta1 = 0, .beta2 = 0.9, .epsilon = 1e-6, .decay = 0}};
  const Graph step = step_of(model, options);
  const Arrays given = given_to(step);
  const Arrays after = results_of(step, given);
  Names names;
  for (const Parameter& parameter : model.parameters) names.push_back(parameter.name);
  const auto gradients = differentiate(model.graph, "loss", names);
  REQUIRE(gradients.has_value());
  std::vector<Arrays> atoms;
  for (size_t atom = 0; atom < 3; ++atom)
    atoms.push_back(results_of(*gradients, atom_of(given, atom)));
  const auto fold = [&](const std::string& name) {
    Array sum = atoms[0].at(name);
    for (double& value : sum.values) value += 0.0;  // it began with zero: there is no -0
    for (size_t atom = 1; atom < 3; ++atom)
      for (size_t i = 0; i < sum.values.size(); ++i)
        sum.values[i] = rounded(sum.values[i] + atoms[atom].at(name).values[i], DType::f32);
    return sum;
  };
  const double share = rounded(1.0 / 3, DType::f32);
  CHECK(after.at("loss").values[0] == rounded(fold("loss").values[0] * share, DType::f32));
  for (const Parameter& parameter : model.parameters) {
    CAPTURE(parameter.name);
    const Array sum = fold(gradient_name(parameter.name));
    const Array& moment = after.at(first_moment_name(parameter.name));
    for (size_t i = 0; i < sum.values.size(); ++i)
      REQUIRE(moment.values[i] == rounded(sum.values[i] * share, DType::f32));
  }
}

TEST_CASE("gradients past the greatest norm are scaled down to it") {
  const Model model = small_model();
  StepOptions options{
      .atoms = 2, .max_norm = 0, .adamw = {.beta1 = 0, .beta2 = 0.9, .epsilon = 1e-6, .decay = 0}};
  const Graph free = step_of(model, options);
  const Arrays given = given_to(free);
  const Arrays before = results_of(free, given);
  const double norm = before.at("norm").values[0];
  const auto scale_with = [&](double max_norm) {
    options.max_norm = max_norm;
    const Arrays after = results_of(step_of(model, options), given);
    CHECK(after.at("norm").values == before.at("norm").values);
    const std::string name = first_moment_name("words");
    return after.at(name).values[0] / before.at(name).values[0];
  };
  CHECK(scale_with(norm / 4) == doctest::Approx(0.25).epsilon(1e-4));
  CHECK(scale_with(norm * 4) == 1);
}

TEST_CASE("a step's program computes, decides, and only then writes states") {
  for (const int64_t atoms : {1, 2}) {
    const Graph step = step_of(small_model(), {.atoms = atoms, .max_norm = 1, .adamw = {}});
    const auto program = lower_to_program(optimize(step));
    REQUIRE_MESSAGE(program.has_value(), program.error().text());
    Section last = Section::compute;
    for (const Instruction& instruction : program->instructions) {
      CHECK(instruction.section >= last);
      last = instruction.section;
      if (instruction.kernel == Kernel::adamw) CHECK(last == Section::commit);
      if (instruction.kernel == Kernel::square_chunks) CHECK(last == Section::decide);
      for (const TensorRef& result : instruction.results) {
        const ProgramBuffer& buffer = program->buffers[result.buffer];
        if (last == Section::commit || buffer.place != BufferPlace::output) continue;
        CHECK(step.input(program->outputs[buffer.index].name) == nullptr);
      }
    }
    CHECK(last == Section::commit);
  }
}

TEST_CASE("a model without a loss or parameters is refused") {
  Model model = small_model();
  model.graph.outputs.clear();
  CHECK(training_step(model, {}).error().text().find("no output \"loss\"") != std::string::npos);
  model = small_model();
  model.parameters.clear();
  CHECK(training_step(model, {}).error().text().find("no parameters") != std::string::npos);
  CHECK(training_step(small_model(), {.atoms = 0, .max_norm = 0, .adamw = {}}).error().code() ==
        Code::invalid);
}
