#include "compile/shard/sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/assert.h"

namespace tutti {

bool TensorSharding::has_axis(std::string_view axis) const {
  return std::ranges::any_of(dims,
                             [&](const DimSharding& dim) { return contains(dim.axes, axis); });
}

Names TensorSharding::axes() const {
  Names all;
  for (const DimSharding& dim : dims)
    for (const std::string& axis : dim.axes) all = with(std::move(all), axis);
  return all;
}

TensorSharding whole_sharding(const Type& type) {
  return {.dims = std::vector<DimSharding>(type.dims.size())};
}

Type local_type(const Type& type, const TensorSharding& sharding, const ShardMesh& mesh) {
  TUTTI_ASSERT(sharding.dims.size() == type.dims.size(), "every dimension lies somehow");
  Type local = type;
  for (size_t i = 0; i < type.dims.size(); ++i)
    local.dims[i].size /= mesh.product(sharding.dims[i].axes);
  return local;
}

std::string sharding_text(const Type& type, const TensorSharding& sharding) {
  std::string dims;
  for (size_t i = 0; i < type.dims.size(); ++i) {
    const DimSharding& dim = sharding.dims[i];
    dims += fmt::format("{}{}={}", i == 0 ? "" : ", ", type.dims[i].name, type.dims[i].size);
    if (!dim.axes.empty()) dims += fmt::format("/{}", fmt::join(dim.axes, "/"));
    if (!dim.segments.empty()) dims += fmt::format(" in {}", fmt::join(dim.segments, "+"));
  }
  std::string text = fmt::format("{}[{}]", dtype_name(type.dtype), dims);
  if (!sharding.partial.empty())
    text += fmt::format(" partial {}", fmt::join(sharding.partial, ","));
  return text;
}

bool divides(const DimSharding& dim, int64_t size, int64_t ranks) {
  if (dim.segments.empty()) return size % ranks == 0;
  return std::ranges::all_of(dim.segments, [&](int64_t each) { return each % ranks == 0; });
}

std::vector<PlaceRange> places_of(const DimSharding& dim, int64_t size, const ShardMesh& mesh,
                                  int64_t rank) {
  const int64_t ranks = mesh.product(dim.axes);
  const int64_t own = mesh.coordinate(rank, dim.axes);
  std::vector<PlaceRange> ranges;
  int64_t start = 0;
  for (const int64_t segment : dim.segments.empty() ? std::vector{size} : dim.segments) {
    const int64_t part = segment / ranks;
    ranges.push_back({start + own * part, part});
    start += segment;
  }
  return ranges;
}

Names with(Names all, const std::string& name) {
  const auto place = std::ranges::lower_bound(all, name);
  if (place == all.end() || *place != name) all.insert(place, name);
  return all;
}

Names without(Names all, const Names& some) {
  std::erase_if(all, [&](const std::string& name) { return contains(some, name); });
  return all;
}

Names common(const Names& a, const Names& b) {
  Names both = a;
  std::erase_if(both, [&](const std::string& name) { return !contains(b, name); });
  return both;
}

bool contains(const Names& all, std::string_view name) {
  return std::ranges::find(all, name) != all.end();
}

}  // namespace tutti
