#include "compile/shard/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/assert.h"

namespace tutti {
namespace {

constexpr std::string_view kExample = "write it as dp=2,tp=2";

bool is_name(std::string_view text) {
  const auto fits = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '_';
  };
  return !text.empty() && std::ranges::all_of(text, fits);
}

}  // namespace

Result<ShardMesh> ShardMesh::make(std::vector<ShardAxis> axes) {
  ShardMesh mesh;
  if (axes.size() > kMostShardAxes)
    return fail(Code::invalid, "a mesh has {} axes; use at most {}", axes.size(), kMostShardAxes);
  for (ShardAxis& axis : axes) {
    if (!is_name(axis.name))
      return fail(Code::invalid, "`{}` is no name of an axis; use letters, digits and _",
                  axis.name);
    if (mesh.find(axis.name) != nullptr)
      return fail(Code::invalid, "the mesh has two axes {}; name each once", axis.name);
    if (axis.size < 1)
      return fail(Code::invalid, "axis {} has size {}; use 1 or more", axis.name, axis.size);
    if (axis.size > kMostShardRanks / mesh.ranks_)
      return fail(Code::invalid, "the mesh has more than {} ranks; make {} smaller",
                  kMostShardRanks, axis.name);
    mesh.ranks_ *= axis.size;
    mesh.axes_.push_back(std::move(axis));
  }
  return mesh;
}

Result<ShardMesh> ShardMesh::parse(std::string_view text) {
  std::vector<ShardAxis> axes;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view axis = text.substr(at, end - at);
    const size_t equals = axis.find('=');
    if (equals == std::string_view::npos)
      return fail(Code::invalid, "mesh {}: `{}` is no axis with its size; {}", text, axis,
                  kExample);
    const std::string_view digits = axis.substr(equals + 1);
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    if (error != std::errc() || stop != digits.data() + digits.size())
      return fail(Code::invalid, "mesh {}: `{}` is no size of an axis; {}", text, digits, kExample);
    axes.push_back({std::string(axis.substr(0, equals)), size});
    at = end + 1;
  }
  auto made = make(std::move(axes));
  if (!made) return fail(made.error().context(fmt::format("mesh {}", text)));
  return made;
}

const ShardAxis* ShardMesh::find(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &ShardAxis::name);
  return found == axes_.end() ? nullptr : &*found;
}

int64_t ShardMesh::size_of(std::string_view axis) const {
  const ShardAxis* found = find(axis);
  return found == nullptr ? 1 : found->size;
}

int64_t ShardMesh::product(const std::vector<std::string>& axes) const {
  int64_t all = 1;
  for (const std::string& axis : axes) all *= size_of(axis);
  return all;
}

int64_t ShardMesh::stride(std::string_view axis) const {
  int64_t apart = 1;
  for (size_t i = axes_.size(); i-- > 0 && axes_[i].name != axis;) apart *= axes_[i].size;
  return apart;
}

int64_t ShardMesh::coordinate(int64_t rank, std::string_view axis) const {
  return rank / stride(axis) % size_of(axis);
}

int64_t ShardMesh::coordinate(int64_t rank, const std::vector<std::string>& axes) const {
  int64_t place = 0;
  for (const std::string& axis : axes) place = place * size_of(axis) + coordinate(rank, axis);
  return place;
}

std::vector<int64_t> ShardMesh::coordinates(int64_t rank) const {
  std::vector<int64_t> all;
  for (const ShardAxis& axis : axes_) all.push_back(coordinate(rank, axis.name));
  return all;
}

int64_t ShardMesh::rank_at(const std::vector<int64_t>& coordinates) const {
  TUTTI_ASSERT(coordinates.size() == axes_.size(), "a rank has a coordinate along every axis");
  int64_t rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) rank = rank * axes_[i].size + coordinates[i];
  return rank;
}

std::vector<int64_t> ShardMesh::group(int64_t rank, std::string_view axis) const {
  const int64_t apart = stride(axis);
  const int64_t first = rank - coordinate(rank, axis) * apart;
  std::vector<int64_t> all;
  for (int64_t i = 0; i < size_of(axis); ++i) all.push_back(first + i * apart);
  return all;
}

Result<void> ShardMesh::check_workers(int64_t workers) const {
  if (workers == ranks_) return {};
  return fail(Code::invalid,
              "mesh {} has {} ranks, and there are {} workers; use --workers {}, or "
              "another mesh",
              text(), ranks_, workers, ranks_);
}

std::string ShardMesh::text() const {
  std::string out;
  for (const ShardAxis& axis : axes_)
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", axis.name, axis.size);
  return out;
}

}  // namespace tutti
