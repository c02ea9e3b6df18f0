// Models for tests of training.
#pragma once

#include "compile/model.h"
#include "compile/tiny_gpt_test.h"

namespace tutti {

// Scales, shifts and biases have no decay.
inline Model model_of(Graph graph) {
  Model model{.graph = std::move(graph), .parameters = {}};
  for (const Input& input : model.graph.inputs) {
    if (input.role != InputRole::state) continue;
    const bool is_matrix = input.name.find('.') == std::string::npos;
    const bool is_scale = input.name.ends_with("scale");
    model.parameters.push_back({.name = input.name,
                                .type = model.graph.type(input.value),
                                .init = {.kind = is_matrix  ? InitKind::normal
                                                 : is_scale ? InitKind::ones
                                                            : InitKind::zeros,
                                         .scale = 0.1},
                                .decay = is_matrix});
  }
  return model;
}

inline Model small_model(int64_t layers = 2) { return model_of(tiny_gpt(layers)); }

// The same, but its weights have names of layers.
inline Model with_layer_names(Model model) {
  for (Parameter& parameter : model.parameters) {
    if (parameter.type.dims[0].name != "layer") continue;
    for (Input& input : model.graph.inputs)
      if (input.name == parameter.name) input.name = "blocks.*." + parameter.name;
    parameter.name = "blocks.*." + parameter.name;
  }
  return model;
}

}  // namespace tutti
