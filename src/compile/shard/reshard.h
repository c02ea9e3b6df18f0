// Operations that bring what ranks have of a tensor from one layout into another.
//
// Sums come first: an axis that is to split a dimension afterwards scatters what it sums. An axis
// that moves from one dimension to another is an all_to_all; one that only goes away gathers; one
// that only comes takes a slice, for which nothing is sent.
#pragma once

#include <string>

#include "compile/graph.h"
#include "compile/shard/mesh.h"
#include "compile/shard/sharding.h"

namespace tutti {

// Gathers of more than this are most likely not what rules were meant to do. The activations of the
// largest models, which sequence parallelism gathers, are half of it for one sample.
constexpr int64_t kReshardLimit = int64_t{1} << 30;

// Writes operations to the end of a local graph.
class Resharder {
 public:
  Resharder(Graph& to, const ShardMesh& mesh, int64_t limit)
      : to_(to), mesh_(mesh), limit_(limit) {}

  // What `value` becomes, which lies as `from` says. Partial sums may only become fewer. Larger
  // gathers than the limit are an error that tells both layouts.
  Result<ValueId> reshard(ValueId value, const Type& whole, const TensorSharding& from,
                          const TensorSharding& to, const std::string& at);

  // An operation that is right, and its first result.
  ValueId emit(Node op, const Type* given = nullptr);
  ValueId all_reduce(ValueId value, const std::string& axis, bool to_max, const std::string& at);
  ValueId slice(ValueId value, const std::string& dim, int64_t start, int64_t size,
                const std::string& at);

 private:
  struct Move;

  Node collective(OpKind kind, ValueId value, const std::string& axis, const std::string& at) const;
  ValueId concat(std::vector<ValueId> parts, const std::string& dim, const std::string& at);
  // From each segment's parts side by side to each part's segments side by side, and back.
  ValueId by_parts(ValueId value, const std::string& dim, const std::vector<int64_t>& segments,
                   int64_t parts, bool back, const std::string& at);

  void scatter(Move& move, size_t dim);
  void reduce(Move& move);
  void take_slices(Move& move);
  Result<void> gather_or_move(Move& move, size_t dim);

  Graph& to_;
  const ShardMesh& mesh_;
  int64_t limit_;
};

}  // namespace tutti
