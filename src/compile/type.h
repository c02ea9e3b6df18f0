// What a value of the graph is: numbers of one kind in a box with named sides.
//
// A side ("dimension") has a name that is unique within its tensor: operations match dimensions by
// name, and sharding rules speak of names. Sizes are known when the graph is built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace tutti {

// Sizes and offsets are signed here.
constexpr int64_t element_bytes(DType dtype) { return static_cast<int64_t>(dtype_bytes(dtype)); }

struct Dim {
  std::string name;
  int64_t size;

  bool operator==(const Dim&) const = default;
};

using Dims = std::vector<Dim>;

// "batch=16, time=256"
std::string dims_text(const Dims& dims);

struct Type {
  DType dtype = DType::f32;
  Dims dims;

  bool operator==(const Type&) const = default;
  int64_t elements() const;
  int64_t bytes() const { return elements() * element_bytes(dtype); }
  // The place of the dimension of this name.
  std::optional<size_t> find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name).has_value(); }
  int64_t size_of(std::string_view name) const;  // which must be there
  Type with(DType other) const { return {other, dims}; }
  Type without(const std::vector<std::string>& names) const;
  std::vector<std::string> names() const;  // of its dimensions, in order
  std::string text() const;                // "f32[batch=16, time=256]", "f32[]"
};

// How far apart elements are along each dimension when they lie in order, without gaps.
std::vector<int64_t> dense_strides(const Type& type);

// No name twice, sizes of 1 and more, no more elements than an arena could hold, and a kind of
// number that kernels compute with.
Result<void> check_type(const Type& type);

}  // namespace tutti
