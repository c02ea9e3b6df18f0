// How a logical tensor lies over ranks.
//
// A Mesh arranges ranks along named axes, row-major. A Layout gives each axis of a mesh one role:
// it shards a dimension of the tensor, or is partial (its ranks hold summands of the same
// elements), or else replicates. So what a rank holds is a box, the product of one piece of every
// dimension, which lies contiguous and row-major in that rank's memory. Pieces may be uneven, or
// empty.
//
//   auto mesh = Mesh::make({{"fsdp", 4}, {"tp", 2}});
//   auto layout = Layout::make(*mesh, {.shape = {4096, 4096}, .shards = {{0, {"fsdp"}}, {1,
//   {"tp"}}}});
//
// Values without any reach: no World, no memory. Cheap to copy; any thread may read them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "fabric/dtype.h"

namespace tutti {

constexpr size_t kMostDimensions = 8;         // as many as a tensor of the vault may have
constexpr uint32_t kMostMeshRanks = 1 << 20;  // tables by rank stay small
constexpr size_t kMostAxes = 16;

struct MeshAxis {
  std::string name;
  uint32_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

class Mesh {
 public:
  // Over these ranks, the last axis varying fastest.
  static Result<Mesh> make(std::vector<MeshAxis> axes, std::vector<uint32_t> ranks);
  // Over ranks 0, 1, 2, …
  static Result<Mesh> make(std::vector<MeshAxis> axes);

  std::span<const MeshAxis> axes() const { return body_->axes; }
  // By place: a place is an index of this list.
  std::span<const uint32_t> ranks() const { return body_->ranks; }
  uint32_t size() const { return static_cast<uint32_t>(body_->ranks.size()); }
  std::optional<uint32_t> place_of(uint32_t rank) const;
  // Of neighbours along an axis, how far apart their places are.
  uint32_t stride(size_t axis) const { return body_->strides[axis]; }

  Hash128 hash() const { return body_->hash; }
  bool operator==(const Mesh& other) const { return hash() == other.hash(); }
  std::string text() const;  // "fsdp=4 tp=2 of ranks 0-7"

 private:
  struct Body {
    std::vector<MeshAxis> axes;
    std::vector<uint32_t> ranks;
    std::vector<uint32_t> strides;
    std::vector<uint32_t> by_rank;  // places, ascending by their rank
    Hash128 hash;
  };
  explicit Mesh(std::shared_ptr<const Body> body) : body_(std::move(body)) {}

  std::shared_ptr<const Body> body_;
};

// A part of a tensor: a range of every dimension.
struct Box {
  uint32_t dimensions = 0;
  std::array<uint64_t, kMostDimensions> begin{};
  std::array<uint64_t, kMostDimensions> extent{};

  uint64_t elements() const;
  bool operator==(const Box& other) const;
  std::string text() const;  // "[0:128, 64:96]"
};

// One dimension in pieces.
struct Sharding {
  uint32_t dimension = 0;
  std::vector<std::string> axes;  // several split it together, the last varying fastest
  // Pieces are as even as can be, beginning at multiples of this.
  uint64_t chunk = 1;
  // Or they are given: where each piece begins, and where the last ends.
  std::vector<uint64_t> bounds;
};

struct LayoutOptions {
  std::vector<uint64_t> shape;
  std::vector<Sharding> shards;
  // The tensor is the sum (mean, max, min) over these axes of what their ranks hold; in lanes, as a
  // FoldTree has them, the last axis varying fastest.
  std::vector<std::string> partial;
  ReduceOp op = ReduceOp::sum;
};

class Layout {
 public:
  static Result<Layout> make(Mesh mesh, LayoutOptions options);

  std::span<const uint64_t> shape() const { return shape_; }
  uint32_t dimensions() const { return static_cast<uint32_t>(shape_.size()); }
  const Mesh& mesh() const { return mesh_; }
  ReduceOp op() const { return op_; }
  // Ranks that hold summands of an element, and ranks that hold each of these.
  uint32_t lanes() const { return lanes_; }
  uint32_t replicas() const { return replicas_; }

  // What a place of the mesh holds.
  struct Holding {
    std::array<uint32_t, kMostDimensions> piece{};
    uint32_t lane = 0;
    uint32_t replica = 0;
  };
  Holding holding(uint32_t place) const;
  Box box(const Holding& holding) const;
  Box box(uint32_t place) const { return box(holding(place)); }

  // Pieces of a dimension, and where one begins; that past the last begins at the end.
  uint32_t pieces(uint32_t dimension) const { return split_[dimension].pieces; }
  uint64_t piece_begin(uint32_t dimension, uint32_t piece) const;
  // A place is the sum of what its pieces, its lane and its replica add to it.
  uint32_t place_of_piece(uint32_t dimension, uint32_t piece) const;
  uint32_t place_of_lane(uint32_t lane) const;
  uint32_t place_of_replica(uint32_t replica) const;

  Hash128 hash() const { return hash_; }
  bool operator==(const Layout& other) const { return hash() == other.hash(); }
  std::string text() const;  // "(4096 by fsdp, 4096 by tp) on fsdp=4 tp=2 of ranks 0-7"

 private:
  struct Split {
    std::vector<uint32_t> axes;  // of the mesh
    uint32_t pieces = 1;
    uint64_t chunk = 1;
    std::vector<uint64_t> bounds;
  };

  Layout(Mesh mesh, LayoutOptions& options);
  Result<std::vector<uint32_t>> take(const std::vector<std::string>& names,
                                     std::vector<std::string>& roles, std::string role) const;
  Result<void> split(Sharding sharding, std::vector<std::string>& roles);
  uint32_t add_up(std::span<const uint32_t> axes, uint32_t index) const;
  uint32_t index_in(std::span<const uint32_t> axes, uint32_t place) const;
  Hash128 hash_of_all() const;

  Mesh mesh_;
  std::vector<uint64_t> shape_;
  std::vector<Split> split_;  // by dimension
  std::vector<uint32_t> partial_;
  std::vector<uint32_t> replicating_;
  ReduceOp op_;
  uint32_t lanes_ = 1;
  uint32_t replicas_ = 1;
  Hash128 hash_;
};

}  // namespace tutti
