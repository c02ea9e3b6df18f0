#include "compile/program/tensor_view.h"

#include <algorithm>

#include "base/assert.h"

namespace tutti {

bool TensorRef::is_dense() const {
  int64_t next = 1;
  for (size_t i = type.dims.size(); i-- > 0; next *= type.dims[i].size)
    if (type.dims[i].size != 1 && strides[i] != next) return false;
  return true;
}

TensorRef dense(uint32_t buffer, const Type& type, int64_t offset) {
  return {.buffer = buffer, .offset = offset, .type = type, .strides = dense_strides(type)};
}

TensorRef transposed(const TensorRef& ref, const Names& order) {
  TensorRef out{ref.buffer, ref.offset, {ref.type.dtype, {}}, {}};
  for (const std::string& name : order) {
    const size_t place = *ref.type.find(name);
    out.type.dims.push_back(ref.type.dims[place]);
    out.strides.push_back(ref.strides[place]);
  }
  return out;
}

TensorRef sliced(const TensorRef& ref, std::string_view dim, int64_t start, int64_t size) {
  TensorRef out = ref;
  const size_t place = *ref.type.find(dim);
  out.type.dims[place].size = size;
  out.offset += start * ref.strides[place];
  return out;
}

TensorRef broadcasted(const TensorRef& ref, const Type& type) {
  TensorRef out{ref.buffer, ref.offset, type, {}};
  for (const Dim& dim : type.dims) {
    const auto place = ref.type.find(dim.name);
    out.strides.push_back(place ? ref.strides[*place] : 0);
  }
  return out;
}

TensorRef part(const TensorRef& ref, int64_t i) {
  TensorRef out = ref;
  out.offset += i * ref.strides.front();
  out.type.dims.erase(out.type.dims.begin());
  out.strides.erase(out.strides.begin());
  return out;
}

// Both shapes are cut into the same runs of dimensions, each of which must lie without gaps.
std::optional<TensorRef> reshaped(const TensorRef& ref, const Type& type) {
  TensorRef out{ref.buffer, ref.offset, type, std::vector<int64_t>(type.dims.size())};
  const Dims& old = ref.type.dims;
  size_t i = old.size();
  size_t j = type.dims.size();
  while (i > 0 || j > 0) {
    int64_t theirs = 1;
    int64_t ours = 1;
    const size_t old_end = i;
    const size_t new_end = j;
    do {
      if ((theirs <= ours && i > 0) || j == 0)
        theirs *= old[--i].size;
      else
        ours *= type.dims[--j].size;
    } while (theirs != ours && (i > 0 || j > 0));
    if (theirs != ours) return std::nullopt;
    int64_t inner = 1;  // the innermost stride of the run that counts
    bool known = false;
    int64_t next = 0;
    for (size_t k = old_end; k-- > i;) {
      if (old[k].size == 1) continue;
      if (!known) {
        inner = next = ref.strides[k];
        known = true;
      }
      if (ref.strides[k] != next) return std::nullopt;
      next *= old[k].size;
    }
    for (size_t k = new_end; k-- > j;) {
      out.strides[k] = inner;
      inner *= type.dims[k].size;
    }
  }
  return out;
}

std::optional<Joined> joined(const TensorRef& ref, const Names& names) {
  Joined out{1, 1};
  bool known = false;
  for (size_t i = names.size(); i-- > 0;) {
    const size_t place = *ref.type.find(names[i]);
    const int64_t size = ref.type.dims[place].size;
    if (size == 1) continue;
    if (!known) {
      out.stride = ref.strides[place];
      known = true;
    } else if (ref.strides[place] != out.stride * out.size) {
      return std::nullopt;
    }
    out.size *= size;
  }
  return out;
}

bool same_place(const TensorRef& a, const TensorRef& b) {
  if (a.buffer != b.buffer || a.offset != b.offset) return false;
  for (size_t i = 0; i < a.type.dims.size(); ++i)
    if (a.type.dims[i].size > 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

}  // namespace tutti
