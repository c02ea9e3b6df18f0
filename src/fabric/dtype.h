// The types of elements that the fabric moves and reduces.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace tutti {

// Truth values are not numbers: they are only moved.
constexpr bool is_reduced(DType type) { return type != DType::boolean; }

// A mean is the sum divided by the number of lanes. NaN wins in max and min. Integers wrap.
enum class ReduceOp : uint8_t { sum, mean, max, min };

constexpr std::string_view reduce_op_name(ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "mean", "max", "min"};
  return names[static_cast<int>(op)];
}
constexpr std::optional<ReduceOp> reduce_op_named(std::string_view name) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min})
    if (reduce_op_name(op) == name) return op;
  return std::nullopt;
}

}  // namespace tutti
