// Spans of bytes, and little-endian integers in them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/assert.h"

namespace tutti {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline Bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline MutableBytes as_mutable_bytes(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

// Every format of ours is little-endian; so is every machine we run on.
static_assert(std::endian::native == std::endian::little);

template <class Integer>
Integer load_le(const std::byte* from) {
  Integer value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class Integer>
void store_le(std::byte* to, Integer value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace tutti
