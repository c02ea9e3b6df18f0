// What rules mean for the dimensions of one graph, those included that follow from others.
//
// Rules speak of names. A dimension without one that is split into dimensions with one, or merged
// from them, is split as they are: "mixed" as the "heads" that it is made of. One that is cut into
// slices which are split has these for segments: "qkv" as its three parts. Such derived entries
// count as much as the rule that they come from. They are of a name with a size, since a slice has
// the name of what it was cut from.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compile/graph.h"
#include "compile/shard/mesh.h"
#include "compile/shard/rules.h"
#include "compile/shard/sharding.h"

namespace tutti {

// What may be split by axes: a dimension of a tensor, or one that several tensors of an operation
// have in common.
struct ShardSlot {
  std::string name;
  int64_t size = 1;
  size_t order = 0;  // the lower, the sooner it may choose
  Names wanted = {};
  std::vector<int64_t> dividing = {};  // what has to divide: its segments, on all sides
  Names axes = {};                     // what it got
  std::string undivided = {};          // an axis that was free and did not divide it
};

// In their order, each takes of the axes it wants those that are left.
void assign_axes(std::span<ShardSlot*> slots, Names taken, const ShardMesh& mesh);

class DimTable {
 public:
  // Of a graph, its bodies included.
  DimTable(const Graph& graph, const ShardMesh& mesh, const ShardRules& rules);

  struct Entry {
    Names axes;
    std::vector<int64_t> segments = {};
    size_t order = 0;

    bool operator==(const Entry&) const = default;
  };
  // Nothing if no rule speaks of it, or the one that does leaves it whole.
  const Entry* find(const Dim& dim) const;

  // How a tensor lies that nobody has made yet.
  TensorSharding of(const Type& type) const;
  // The same of what a graph is given, where what does not divide is an error.
  Result<TensorSharding> of_input(std::string_view name, const Type& type) const;

  // The order of what no rule speaks of: after all others.
  static constexpr size_t kLast = ~size_t{0};

 private:
  using Key = std::pair<std::string, int64_t>;
  friend class DimDerivation;

  std::vector<ShardSlot> slots_of(const Type& type) const;

  ShardMesh mesh_;
  ShardRules rules_;
  std::map<Key, Entry> entries_;  // of every dimension of the graph that has one
};

}  // namespace tutti
