// How a frame is made, operation by operation; for frame.cc and lower_large.cc.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compile/program/frame.h"

namespace tutti {

class FrameLowering {
 public:
  FrameLowering(const Graph& graph, LoopTable& loops);
  Result<FrameCode> run();

 private:
  void want_outputs();
  void want_parts_of_concats();
  void copy_outputs();
  Result<FrameCode> place_scratch();

  TensorRef scratch(const Type& type);
  // Where an operation's result is to be written.
  TensorRef result(const Node& op, size_t i, bool must_be_dense);
  void settle(const Node& op);
  std::vector<TensorRef> operands(const Node& op) const;
  std::vector<TensorRef> dense_operands(const Node& op);
  TensorRef as_dense(const TensorRef& ref);

  Instruction& emit(Kernel kernel, std::vector<TensorRef> operands, std::vector<TensorRef> results,
                    Attributes attributes = {});
  void emit_loops(const Graph& body, std::vector<TensorRef> operands,
                  std::vector<TensorRef> results);
  void copy(const TensorRef& from, const TensorRef& to);
  void fill(const TensorRef& to, double value);

  Result<void> lower(const Node& op);
  Result<void> lower_shape(const Node& op);
  void lower_reduction(const Node& op);
  void lower_sum_of_rows(const Node& op, const Names& kept, const Names& summed);
  Result<void> lower_repeat(const Node& op);
  void instantiate(const FrameCode& frame, const std::vector<TensorRef>& buffers);
  void lower_plainly(const Node& op);
  Graph alone(const Node& op, const std::vector<TensorRef>& operands) const;
  void lower_alone(const Node& op);

  // With other workers (lower_collective.cc).
  void lower_collective(const Node& op);
  void lower_between_ranks(const Node& op);
  void emit_collective(const Node& op, std::vector<TensorRef> in, const TensorRef& out);
  bool may_reduce_in_place(const Node& op) const;
  void part_collectives();

  // Larger operations.
  Result<void> lower_large(const Node& op);
  Result<void> lower_matmul(const Node& op);
  void lower_cross_entropy(const Node& op);
  void lower_norm_grad(const Node& op, Kernel rows, Kernel join);
  void lower_squared_norm(const Node& op);
  void lower_rows(const Node& op);
  // What follows a product element by element is done to its blocks while they are in the cache.
  void find_edges();
  void share_with_edge(const Node& product);
  void attach_edge(const Node& product, size_t columns);
  void gemm(const TensorRef& a, const TensorRef& b, const TensorRef& c, bool accumulate);

  const Graph& graph_;
  LoopTable& loops_;
  uint32_t parameters_;                           // buffers that are inputs and outputs
  std::vector<std::optional<TensorRef>> refs_;    // where each value is
  std::vector<std::optional<TensorRef>> wanted_;  // where it should be
  std::vector<uint32_t> uses_;
  std::vector<bool> of_input_;       // what is an input, or looks at one in another way
  std::map<ValueId, size_t> edges_;  // of a product's result: the operation
  std::set<size_t> done_;            // operations that were lowered with another one
  std::vector<int64_t> scratch_bytes_;
  std::vector<Instruction> instructions_;
  std::string at_;
};

}  // namespace tutti
