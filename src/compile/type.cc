#include "compile/type.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/assert.h"

namespace tutti {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  bool is_float;
};

constexpr std::array kDTypes = {
    DTypeRow{DType::f32, "f32", 4, true},  DTypeRow{DType::bf16, "bf16", 2, true},
    DTypeRow{DType::f16, "f16", 2, true},  DTypeRow{DType::i32, "i32", 4, false},
    DTypeRow{DType::i64, "i64", 8, false}, DTypeRow{DType::u32, "u32", 4, false},
    DTypeRow{DType::u8, "u8", 1, false},   DTypeRow{DType::boolean, "bool", 1, false},
};

// 2^46 elements: no machine has as much, and products of offsets stay far from overflow.
constexpr int64_t kMaxElements = int64_t{1} << 46;

const DTypeRow& row(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_named(std::string_view name) {
  for (const DTypeRow& known : kDTypes)
    if (known.name == name) return known.dtype;
  return std::nullopt;
}

int64_t dtype_bytes(DType dtype) { return row(dtype).bytes; }

bool is_float(DType dtype) { return row(dtype).is_float; }

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

std::string Type::text() const { return fmt::format("{}[{}]", dtype_name(dtype), dims_text(dims)); }

Result<void> check_type(const Type& type) {
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
