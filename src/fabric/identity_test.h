// For tests: sums whose digest is the same whoever holds the lanes, and however they are summed.
#pragma once

#include <random>
#include <vector>

#include "base/hash.h"
#include "fabric/bucket.h"
#include "fabric/fold.h"

namespace tutti {

constexpr uint32_t kIdentityLanes = 8;
// Everything alone, some joined, all in one.
constexpr uint64_t kIdentityBuckets[] = {1, 40'000, uint64_t{1} << 30};
// Past every switch of algorithm: data with its call, and the classes of a rail (16 KiB, 64 KiB,
// 1 MiB, more), for a bucket of one tensor and of all. bf16 is widened and rounded.
constexpr uint64_t kIdentitySizes[] = {3, 1'000, 300, 7'001, 33'333, 300'001};

// What all lanes hold, and their sums by the tree.
class IdentityCase {
 public:
  explicit IdentityCase(uint64_t seed, uint32_t lanes = kIdentityLanes) : lanes_(lanes) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const uint64_t size : kIdentitySizes) {
        auto& tensor = values_.emplace_back();
        types_.push_back(type);
        for (uint32_t lane = 0; lane < lanes; ++lane) {
          std::vector<float> numbers(size);
          for (float& number : numbers) number = normal(random);
          auto& data = tensor.emplace_back(size * dtype_bytes(type));
          if (type == DType::f32) std::memcpy(data.data(), numbers.data(), data.size());
          if (type != DType::f32) narrow_halves(type, data.data(), numbers.data(), size);
        }
      }
    }
  }
  uint32_t lanes() const { return lanes_; }
  size_t tensors() const { return values_.size(); }
  DType type(size_t tensor) const { return types_[tensor]; }
  const std::vector<std::byte>& lane(size_t tensor, uint32_t lane) const {
    return values_[tensor][lane];
  }
  // A node of the tree, rounded once.
  std::vector<std::byte> joined(size_t tensor, LaneRange node) const {
    std::vector<const std::byte*> sources;
    for (uint32_t i = 0; i < node.count; ++i)
      sources.push_back(values_[tensor][node.first + i].data());
    std::vector<std::byte> sum(values_[tensor][0].size());
    std::byte* targets[] = {sum.data()};
    fold(FoldTree::plain(node.count), {.type = types_[tensor],
                                       .sources = sources,
                                       .targets = targets,
                                       .elements = sum.size() / dtype_bytes(types_[tensor])});
    return sum;
  }
  uint64_t expected() const {
    Hasher hasher;
    for (size_t tensor = 0; tensor < tensors(); ++tensor)
      hasher.update(joined(tensor, {0, lanes_}));
    return hasher.digest64();
  }

 private:
  uint32_t lanes_;
  std::vector<DType> types_;
  std::vector<std::vector<std::vector<std::byte>>> values_;  // by tensor and lane
};

// What one of `ranks` holds of it: each lane by itself, as small as a node can be.
class IdentityRank {
 public:
  IdentityRank(const IdentityCase& sums, uint32_t ranks, uint32_t rank)
      : sums_(sums), mine_(share_of_lanes(sums.lanes(), ranks, rank)) {
    for (uint32_t i = 0; i < mine_.count; ++i) nodes_.push_back({mine_.first + i, 1});
    for (size_t i = 0; i < sums.tensors(); ++i) results_.emplace_back(sums.lane(i, 0).size());
  }
  // Every rank is one: there are as many lanes.
  void without_lanes() { nodes_.clear(); }

  uint32_t tensors() const { return static_cast<uint32_t>(results_.size()); }
  Result<std::unique_ptr<Buckets>> buckets(std::shared_ptr<Group> group, uint64_t bytes) {
    std::vector<BucketTensor> given;
    for (size_t i = 0; i < results_.size(); ++i) {
      BucketTensor tensor{.type = sums_.type(i),
                          .elements = results_[i].size() / dtype_bytes(sums_.type(i)),
                          .output = results_[i].data()};
      for (uint32_t lane = 0; lane < mine_.count; ++lane)
        tensor.inputs.push_back(sums_.lane(i, mine_.first + lane).data());
      given.push_back(std::move(tensor));
    }
    return Buckets::make(std::move(group), std::move(given),
                         {.bytes = bytes,
                          .lanes = nodes_.empty() ? 0 : sums_.lanes(),
                          .nodes = nodes_,
                          .site = "identity"});
  }
  uint64_t digest() const {
    Hasher hasher;
    for (const auto& result : results_) hasher.update(result);
    return hasher.digest64();
  }

 private:
  const IdentityCase& sums_;
  LaneRange mine_;
  std::vector<LaneRange> nodes_;
  std::vector<std::vector<std::byte>> results_;
};

}  // namespace tutti
