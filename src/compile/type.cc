#include "compile/type.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"

namespace tutti {
namespace {

// 2^46 elements: no machine has as much, and products of offsets stay far from overflow.
constexpr int64_t kMaxElements = int64_t{1} << 46;

}  // namespace

std::string dims_text(const Dims& dims) {
  std::string text;
  for (const Dim& dim : dims)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", dim.name, dim.size);
  return text;
}

int64_t Type::elements() const {
  int64_t product = 1;
  for (const Dim& dim : dims) product *= dim.size;
  return product;
}

std::optional<size_t> Type::find(std::string_view name) const {
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i].name == name) return i;
  return std::nullopt;
}

int64_t Type::size_of(std::string_view name) const {
  const auto place = find(name);
  TUTTI_ASSERT(place.has_value(), "the dimension asked for is there");
  return dims[*place].size;
}

Type Type::without(const std::vector<std::string>& names) const {
  Type left = *this;
  std::erase_if(left.dims,
                [&](const Dim& dim) { return std::ranges::count(names, dim.name) != 0; });
  return left;
}

std::vector<std::string> Type::names() const {
  std::vector<std::string> all;
  for (const Dim& dim : dims) all.push_back(dim.name);
  return all;
}

std::vector<int64_t> dense_strides(const Type& type) {
  std::vector<int64_t> strides(type.dims.size());
  int64_t next = 1;
  for (size_t i = type.dims.size(); i-- > 0; next *= type.dims[i].size) strides[i] = next;
  return strides;
}

std::string Type::text() const { return fmt::format("{}[{}]", dtype_name(dtype), dims_text(dims)); }

Result<void> check_type(const Type& type) {
  if (type.dtype == DType::f64 || type.dtype == DType::i8)
    return fail(Code::unsupported, "{}: nothing computes with {}; use f32 or i32", type.text(),
                dtype_name(type.dtype));
  int64_t elements = 1;
  for (size_t i = 0; i < type.dims.size(); ++i) {
    const Dim& dim = type.dims[i];
    if (dim.name.empty()) return fail(Code::invalid, "{}: a dimension has no name", type.text());
    if (*type.find(dim.name) != i)
      return fail(Code::invalid, "{}: two dimensions are named {}; rename one", type.text(),
                  dim.name);
    if (dim.size < 1)
      return fail(Code::invalid, "{}: dimension {} has size {}, which must be 1 or more",
                  type.text(), dim.name, dim.size);
    if (dim.size > kMaxElements / elements)
      return fail(Code::invalid, "{} has more than 2^46 elements", type.text());
    elements *= dim.size;
  }
  return {};
}

}  // namespace tutti
