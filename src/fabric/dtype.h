// The types of elements that the fabric moves and reduces.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class DType : uint8_t { f32, f64, bf16, f16, i8, u8, i32, i64 };
constexpr int kDTypes = 8;

constexpr uint64_t dtype_bytes(DType type) {
  constexpr uint64_t bytes[] = {4, 8, 2, 2, 1, 1, 4, 8};
  return bytes[static_cast<int>(type)];
}
constexpr std::string_view dtype_name(DType type) {
  constexpr std::string_view names[] = {"f32", "f64", "bf16", "f16", "i8", "u8", "i32", "i64"};
  return names[static_cast<int>(type)];
}
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (int i = 0; i < kDTypes; ++i)
    if (dtype_name(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  return std::nullopt;
}

constexpr bool is_half(DType type) { return type == DType::bf16 || type == DType::f16; }

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
