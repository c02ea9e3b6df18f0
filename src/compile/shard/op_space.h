// What of an operation may be split, and what follows for its operands and results.
//
// An operation has a space of slots: dimensions that its operands and results have in common, by
// which its work can be divided. A product [m, k] · [k, n] has m, k and n. Slots take axes by the
// same rules as dimensions of a tensor do; a result that has not what its operands were split along
// is a partial sum. What an operation needs whole (the dimension of a norm) is no slot.
#pragma once

#include <span>
#include <vector>

#include "compile/graph.h"
#include "compile/shard/dim_table.h"
#include "compile/shard/sharding.h"

namespace tutti {

// A dimension of an operand or result that a slot is.
struct SlotPlace {
  size_t tensor;
  size_t dim;
  std::vector<int64_t> segments = {};  // that it lies in when it is split
};

struct SpaceSlot : ShardSlot {
  std::vector<SlotPlace> operands = {};
  std::vector<SlotPlace> results = {};
  bool looked_up = false;  // by indices: gather's table, scatter_add's result
};

struct OpSpace {
  std::vector<SpaceSlot> slots;

  // Lets slots take axes, but for those taken already.
  void assign(const Names& taken, const ShardMesh& mesh);
  bool has_taken(std::string_view axis) const;
  const SpaceSlot* looked_up() const;  // if it is split
  // How operand or result i has to lie, or lies, but for partial sums that are handed on.
  TensorSharding operand(size_t i, const Type& type) const;
  TensorSharding result(size_t i, const Type& type) const;
};

// Of an operation whose operands lie like this by now: what no rule speaks of stays as it lies. A
// rule for a dimension that a reshape makes and that does not divide is an error.
Result<OpSpace> op_space(const Graph& graph, const Node& op, const DimTable& table,
                         const ShardMesh& mesh, std::span<const TensorSharding> lie);

// Operands of which a partial sum gives a partial sum.
struct LinearOperands {
  std::vector<size_t> which;
  bool together = false;  // all of them have to be, or one alone
};
LinearOperands linear_operands(const Node& op);

}  // namespace tutti
