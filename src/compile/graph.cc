#include "compile/graph.h"

#include <algorithm>

#include "compile/infer.h"

namespace tutti {

const Input* Graph::input(std::string_view input_name) const {
  const auto found = std::ranges::find(inputs, input_name, &Input::name);
  return found == inputs.end() ? nullptr : &*found;
}

const Output* Graph::output(std::string_view output_name) const {
  const auto found = std::ranges::find(outputs, output_name, &Output::name);
  return found == outputs.end() ? nullptr : &*found;
}

ValueId Graph::add_value(Type type) {
  types.push_back(std::move(type));
  return static_cast<ValueId>(types.size() - 1);
}

ValueId Graph::add_input(std::string input_name, Type type, InputRole role) {
  const ValueId value = add_value(std::move(type));
  inputs.push_back({value, std::move(input_name), role});
  return value;
}

Result<std::vector<ValueId>> Graph::add(Node op, const Type* given) {
  std::vector<Type> operands;
  for (const ValueId operand : op.operands) operands.push_back(type(operand));
  TRY(auto results, infer(op.kind, operands, op.attributes, op.body.get(), given));
  op.results.clear();
  for (Type& type : results) op.results.push_back(add_value(std::move(type)));
  ops.push_back(std::move(op));
  return ops.back().results;
}

void Graph::add_output(std::string output_name, ValueId value) {
  outputs.push_back({value, std::move(output_name)});
}

RepeatShape repeat_shape(const Node& op) {
  return {.count = static_cast<size_t>(op.attributes.get<int64_t>("count")),
          .carried = static_cast<size_t>(op.attributes.get<int64_t>("carried")),
          .sliced = static_cast<size_t>(op.attributes.get<int64_t>("sliced")),
          .reversed = op.attributes.get<bool>("reversed"),
          .stack = op.attributes.get<std::string>("stack")};
}

}  // namespace tutti
