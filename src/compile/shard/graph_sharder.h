// Goes through a graph or a body, writing what a rank does for each operation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/graph.h"
#include "compile/shard/dim_table.h"
#include "compile/shard/op_space.h"
#include "compile/shard/reshard.h"

namespace tutti {

struct ShardContext {
  const ShardMesh& mesh;
  const DimTable& table;
  int64_t reshard_limit;
};

class GraphSharder {
 public:
  // `from` and `context` outlive it.
  GraphSharder(const Graph& from, const ShardContext& context, std::vector<TensorSharding> inputs);
  GraphSharder(const GraphSharder&) = delete;
  GraphSharder& operator=(const GraphSharder&) = delete;

  Result<void> run();
  // How an output lies by itself, perhaps as a partial sum. What rules would scatter is scattered
  // already: a part is less to hand on than all of a sum's summands.
  TensorSharding output(size_t i) const;
  // The local graph, with its outputs like this.
  Result<Graph> finish(const std::vector<TensorSharding>& outputs) &&;

 private:
  // A value of the old graph in one of the layouts that it is there in; the first is as it was
  // made.
  struct Version {
    TensorSharding lies;
    ValueId value;
  };

  const Type& type(ValueId old) const { return from_.type(old); }
  bool is_constant(ValueId old) const { return constants_[old].has_value(); }
  bool is_zero(ValueId old) const { return constants_[old] == 0.0; }
  void keep(ValueId old, TensorSharding lies, ValueId value);

  // As it lies when it is no partial sum any more.
  TensorSharding settled(ValueId old) const;
  // A partial sum with these axes summed: where `wanted` or else the rules split along them, it
  // is scattered.
  TensorSharding reduced(ValueId old, const Names& axes, const TensorSharding& wanted) const;
  // Axes over which it may stay a partial sum: nobody else reads it.
  Names open(ValueId old) const;
  Result<ValueId> need(ValueId old, const TensorSharding& wanted, const std::string& at);

  Result<void> step(const Node& op);
  Result<void> divide(const Node& op);  // any that has a space
  // Which partial sums an operation hands on, and of which operands; its slots take their axes.
  struct Handed {
    Names axes;
    std::vector<size_t> operands;
  };
  Handed assign(const Node& op, OpSpace& space) const;
  void write_local(const Node& op, const OpSpace& space, std::vector<ValueId> operands,
                   std::vector<TensorSharding> results);

  Result<void> make_iota(const Node& op);
  void make_random(const Node& op);
  Result<void> add_squares(const Node& op);
  // By a table of which each rank has some rows: what others have counts as zero.
  struct OwnIndices {
    ValueId indices;
    ValueId are_own;
  };
  OwnIndices own_indices(ValueId indices, const SpaceSlot& rows, const std::string& at);
  ValueId zero_where_not(ValueId are_own, ValueId value, const std::string& at);
  Result<void> look_up(const Node& op, const OpSpace& space);
  bool splits_vocabulary(const Node& op) const;
  Result<void> write_in_primitives(const Node& op);

  Result<void> divide_repeat(const Node& op);
  Result<std::vector<TensorSharding>> repeat_inputs(const Node& op) const;

  const Graph& from_;
  const ShardContext& context_;
  Graph to_;
  Resharder resharder_;
  std::vector<std::vector<Version>> versions_;  // by value of the old graph
  std::vector<std::optional<double>> constants_;
  std::vector<uint32_t> uses_;
};

}  // namespace tutti
