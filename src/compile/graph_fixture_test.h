// Graphs and arrays for tests.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/philox.h"
#include "compile/interpret.h"
#include "compile/parse.h"
#include "compile/verify.h"

namespace tutti {

inline Graph graph_of(std::string_view text) {
  auto graph = parse_graph(text);
  REQUIRE_MESSAGE(graph.has_value(), graph.error().text());
  const auto checked = verify(*graph);
  REQUIRE_MESSAGE(checked.has_value(), checked.error().text());
  return *std::move(graph);
}

// Numbers from -1 to 1, or whole ones from 0 to 3.
inline Array array_of(const Type& type, uint64_t seed) {
  Array array{type, std::vector<double>(static_cast<size_t>(type.elements()))};
  for (size_t i = 0; i < array.values.size(); ++i) {
    const uint32_t bits = random_bits(seed, 0, i);
    array.values[i] = is_float(type.dtype)
                          ? rounded(bits * 0x1p-31 - 1, type.dtype)
                          : static_cast<double>(type.dtype == DType::boolean ? bits % 2 : bits % 4);
  }
  return array;
}

inline std::vector<Array> inputs_of(const Graph& graph, uint64_t seed = 1) {
  std::vector<Array> inputs;
  for (const Input& input : graph.inputs)
    inputs.push_back(array_of(graph.type(input.value), seed * 1000 + inputs.size()));
  return inputs;
}

inline std::vector<Array> run(const Graph& graph, std::vector<Array> inputs,
                              Precision precision = Precision::typed) {
  auto results = interpret(graph, std::move(inputs), precision);
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  return *std::move(results);
}

inline void check_close(const Array& a, const Array& b, double tolerance) {
  REQUIRE(a.type == b.type);
  double worst = 0;
  for (size_t i = 0; i < a.values.size(); ++i)
    worst = std::max(worst, std::abs(a.values[i] - b.values[i]) / (1 + std::abs(b.values[i])));
  CHECK(worst <= tolerance);
}

}  // namespace tutti
