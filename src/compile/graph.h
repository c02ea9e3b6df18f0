// A computation: operations in the order in which they may run, each value made once.
//
// Graphs are plain values. A pass takes one and returns another (rewrite.h); nothing is changed in
// place, so nobody holds a reference into what somebody else rewrites.
//
// Repeated layers are one `repeat` operation whose body is a graph. Its operands are, in this
// order, {carried} values that each round hands to the next, {sliced} ones of which round i sees
// the i-th part along their first dimension (which has size {count} and is not there in the body),
// and others that every round sees whole. Results: the carried values after the last round, then
// what the body returns besides, stacked along a new first dimension, {stack}. {reversed} goes from
// the last part to the first; stacked results stay in the order of the parts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/attribute.h"
#include "compile/op.h"
#include "compile/type.h"

namespace tutti {

struct Graph;

using ValueId = uint32_t;
constexpr ValueId kNoValue = ~ValueId{0};

struct Node {
  OpKind kind;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  Attributes attributes;
  std::shared_ptr<const Graph> body;  // of repeat and fused
  std::string at;                     // the line of the user's that asked for it: "gpt.py:41"
};

enum class InputRole : uint8_t {
  data,   // given anew with each call
  state,  // kept from call to call; an output of the same name is its next value
};

struct Input {
  ValueId value;
  std::string name;
  InputRole role = InputRole::data;
};

struct Output {
  ValueId value;
  std::string name;
};

struct Graph {
  std::string name = "main";
  std::vector<Type> types;  // of every value, by its id
  std::vector<Input> inputs;
  std::vector<Node> ops;
  std::vector<Output> outputs;

  const Type& type(ValueId value) const { return types[value]; }
  const Input* input(std::string_view input_name) const;
  const Output* output(std::string_view output_name) const;

  ValueId add_value(Type type);
  ValueId add_input(std::string input_name, Type type, InputRole role = InputRole::data);
  // Results get the types that follow from the operands, or `given` for those operations whose
  // type is given.
  Result<std::vector<ValueId>> add(Node op, const Type* given = nullptr);
  void add_output(std::string output_name, ValueId value);

  std::string text() const;
};

// How a repeat's operands and results are divided.
struct RepeatShape {
  size_t count;
  size_t carried;
  size_t sliced;
  bool reversed;
  std::string stack;  // the name of the dimension of parts
};
RepeatShape repeat_shape(const Node& op);

}  // namespace tutti
