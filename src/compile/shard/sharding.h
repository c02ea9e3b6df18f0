// How a tensor lies over a mesh: which axes split which of its dimensions, and over which axes it
// is still to be summed.
//
//   f32[batch=8/dp, time=16/tp, embed=32]       a rank has [batch=4, time=8, embed=32]
//   f32[embed=32, qkv=96/tp in 32+32+32]        of each of the three, its part
//   f32[embed=32, hidden=64/tp] partial dp      the sum over dp is what is meant
//
// Axes that it does not name have copies. All that is said here speaks of the whole tensor's type;
// local_type() is what a rank has of it.
#pragma once

#include <string>
#include <vector>

#include "compile/attribute.h"
#include "compile/shard/mesh.h"
#include "compile/type.h"

namespace tutti {

struct DimSharding {
  Names axes;  // that split it, the outermost first
  // Sizes of parts that are split each by itself: a rank has its share of all of them, side by
  // side. Empty: there is one, all of it.
  std::vector<int64_t> segments = {};

  bool operator==(const DimSharding&) const = default;
};

struct TensorSharding {
  std::vector<DimSharding> dims;
  Names partial = {};  // sorted

  bool operator==(const TensorSharding&) const = default;
  bool has_axis(std::string_view axis) const;  // one that splits a dimension
  Names axes() const;                          // all of these, sorted
};

// Of a tensor that every rank has all of.
TensorSharding whole_sharding(const Type& type);
Type local_type(const Type& type, const TensorSharding& sharding, const ShardMesh& mesh);
std::string sharding_text(const Type& type, const TensorSharding& sharding);

// Whether all segments divide by so many ranks.
bool divides(const DimSharding& dim, int64_t size, int64_t ranks);

// A run of a dimension's places that a rank has, in the order in which it has them.
struct PlaceRange {
  int64_t start;
  int64_t size;

  bool operator==(const PlaceRange&) const = default;
};
std::vector<PlaceRange> places_of(const DimSharding& dim, int64_t size, const ShardMesh& mesh,
                                  int64_t rank);

// Names as a sorted set.
Names with(Names all, const std::string& name);
Names without(Names all, const Names& some);
Names common(const Names& a, const Names& b);
bool contains(const Names& all, std::string_view name);

}  // namespace tutti
