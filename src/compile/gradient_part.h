// Gradients of what has an input and weights come in two operations of one kind, so that a schedule
// may part them: {part="input"} and {part="weights"}. Without the attribute one computes both, in
// less time than the two take (passes/join_gradients.cc).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "compile/attribute.h"
#include "compile/op.h"

namespace tutti {

constexpr const char* kPart = "part";
constexpr const char* kInputPart = "input";
constexpr const char* kWeightsPart = "weights";

// How many of its results belong to the input, of those kinds whose others belong to weights.
inline std::optional<size_t> results_of_input(OpKind kind) {
  if (kind == OpKind::layer_norm_grad || kind == OpKind::rms_norm_grad) return 1;
  if (kind == OpKind::linear_cross_entropy_grad) return 2;
  return std::nullopt;
}

inline bool has_input_part(const Attributes& attributes) {
  return attributes.get<std::string>(kPart) != kWeightsPart;
}
inline bool has_weights_part(const Attributes& attributes) {
  return attributes.get<std::string>(kPart) != kInputPart;
}

// Of what belongs to all results, that of the operation's part.
template <class T>
std::vector<T> in_part(OpKind kind, const Attributes& attributes, std::vector<T> all) {
  const auto split = results_of_input(kind);
  TUTTI_ASSERT(split.has_value(), "it comes in parts");
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(*split);
  if (!has_weights_part(attributes)) all.erase(middle, all.end());
  if (!has_input_part(attributes)) all.erase(all.begin(), middle);
  return all;
}

}  // namespace tutti
