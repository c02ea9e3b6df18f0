// How ranks are arranged to share one model's work: along axes with names, "dp=2,tp=4".
//
// Rank and coordinates are two ways to say the same: the last axis varies fastest, so that its
// neighbours are those that most likely share a machine. A value without any reach.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tutti {

constexpr size_t kMostShardAxes = 8;          // a tensor's layout stays readable
constexpr int64_t kMostShardRanks = 1 << 20;  // as many as a gang may have

struct ShardAxis {
  std::string name;
  int64_t size;

  bool operator==(const ShardAxis&) const = default;
};

class ShardMesh {
 public:
  ShardMesh() = default;  // of one rank
  static Result<ShardMesh> make(std::vector<ShardAxis> axes);
  // "dp=2,tp=2"; nothing is the mesh of one rank.
  static Result<ShardMesh> parse(std::string_view text);

  const std::vector<ShardAxis>& axes() const { return axes_; }
  const ShardAxis* find(std::string_view axis) const;
  int64_t size_of(std::string_view axis) const;  // 1 if there is no such axis
  int64_t ranks() const { return ranks_; }
  // Of several axes together.
  int64_t product(const std::vector<std::string>& axes) const;

  // Where a rank is along an axis that the mesh has, or along several, the last varying fastest.
  int64_t coordinate(int64_t rank, std::string_view axis) const;
  int64_t coordinate(int64_t rank, const std::vector<std::string>& axes) const;
  // By axis, in their order.
  std::vector<int64_t> coordinates(int64_t rank) const;
  int64_t rank_at(const std::vector<int64_t>& coordinates) const;
  // The ranks that differ from this one along the axis only, with itself, in its order.
  std::vector<int64_t> group(int64_t rank, std::string_view axis) const;

  // Whether so many workers are what the mesh is of.
  Result<void> check_workers(int64_t workers) const;

  bool operator==(const ShardMesh&) const = default;
  std::string text() const;  // "dp=2,tp=2"

 private:
  int64_t stride(std::string_view axis) const;  // how far apart neighbours' ranks are

  std::vector<ShardAxis> axes_;
  int64_t ranks_ = 1;
};

}  // namespace tutti
