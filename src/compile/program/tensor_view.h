// Looking at a tensor in memory in another way, without moving it.
#pragma once

#include <optional>
#include <span>

#include "compile/program/program.h"

namespace tutti {

TensorRef dense(uint32_t buffer, const Type& type, int64_t offset = 0);

TensorRef transposed(const TensorRef& ref, const Names& order);
TensorRef sliced(const TensorRef& ref, std::string_view dim, int64_t start, int64_t size);
TensorRef broadcasted(const TensorRef& ref, const Type& type);
// The i-th part along the first dimension.
TensorRef part(const TensorRef& ref, int64_t i);
// Nothing if its elements do not lie in such a way that they could be looked at so.
std::optional<TensorRef> reshaped(const TensorRef& ref, const Type& type);

// Whether every element of one is where that of the other is. They have the same type.
bool same_place(const TensorRef& a, const TensorRef& b);

// Several dimensions as one, the last varying fastest: how many steps, and how long one is.
struct Joined {
  int64_t size;
  int64_t stride;
};
std::optional<Joined> joined(const TensorRef& ref, const Names& names);

}  // namespace tutti
