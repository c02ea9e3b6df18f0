// Kinds of numbers in tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

// Their values are in messages and files.
enum class DType : uint8_t { f32, f64, bf16, f16, i8, u8, i32, i64, u32, boolean, i16, u16, u64 };
constexpr int kDTypes = 13;
// Graphs compute with the first of them; the rest is moved, reduced and stored.
constexpr int kGraphDTypes = 10;
constexpr bool is_in_graphs(DType type) { return static_cast<int>(type) < kGraphDTypes; }

constexpr uint64_t dtype_bytes(DType type) {
  constexpr uint64_t bytes[] = {4, 8, 2, 2, 1, 1, 4, 8, 4, 1, 2, 2, 8};
  return bytes[static_cast<int>(type)];
}
constexpr std::string_view dtype_name(DType type) {
  constexpr std::string_view names[] = {"f32", "f64", "bf16", "f16", "i8",  "u8", "i32",
                                        "i64", "u32", "bool", "i16", "u16", "u64"};
  return names[static_cast<int>(type)];
}
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (int i = 0; i < kDTypes; ++i)
    if (dtype_name(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  return std::nullopt;
}

constexpr bool is_half(DType type) { return type == DType::bf16 || type == DType::f16; }
constexpr bool is_float(DType type) {
  return type == DType::f32 || type == DType::f64 || is_half(type);
}

}  // namespace tutti
