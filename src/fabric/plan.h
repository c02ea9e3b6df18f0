// Which slices go from whom to whom when tensors change their layout: resharding, loading, elastic
// joins and pushes of weights are all the same.
//
// Every element of every target is written once, by one copy, or by one fold of all lanes where the
// source is partial. What a rank holds itself it takes from itself; else from a rank of its host
// where one holds it; else from any. Of several, the one sends that has least to send so far
// (within its host, or beyond), in bytes, over all tensors of the plan. Between two boxes there is
// at most one copy, so there are no fewer.
//
// A layout is a product of partitions of dimensions, and so is what two layouts have in common: a
// plan keeps, for each different pair of layouts, where the partitions of each dimension meet, and,
// where there is a choice, who sends. Copies are made of that when somebody asks.
//
// A target may be partial too. From a source with as many lanes and the same op, each lane moves by
// itself. Otherwise lane 0 of a sum gets the tensor and its other lanes get zeros; every lane of a
// max, min or mean gets the tensor.
//
// A Plan does not change: any thread may read it. All ranks make the same one by themselves.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/layout.h"

namespace tutti {

// A tensor that changes its layout, and whatever follows it, each of a type of its own: for a
// parameter under Adam {bf16, f32, f32, f32} are weights, master weights and moments.
struct Move {
  std::string name;
  Layout from;
  Layout to;
  std::vector<DType> types = {DType::f32};
};

// One slice, for each of its move's types.
struct SliceCopy {
  uint32_t move = 0;  // of Plan::moves()
  uint32_t to = 0;    // a rank
  // Ranks: one, or one for each lane, to be folded, or none, for zeros.
  std::span<const uint32_t> from;
  Box slice;   // in the tensor
  Box source;  // what each of `from` holds, slice included
  Box target;  // what `to` holds
};

struct PlanTotals {
  uint64_t copies = 0;
  uint64_t moved_bytes = 0;  // from other ranks
  uint64_t kept_bytes = 0;   // from the rank itself
  uint64_t most_sent_bytes = 0;
  uint64_t most_received_bytes = 0;
};

class Plan {
 public:
  // `hosts` tells the host of each rank; without, all are alike.
  static Result<Plan> make(std::vector<Move> moves, std::vector<uint32_t> hosts = {});

  std::span<const Move> moves() const { return moves_; }
  // Equal for plans of equal moves.
  Hash128 hash() const { return hash_; }
  static Hash128 hash_of(std::span<const Move> moves, std::span<const uint32_t> hosts);

  // The visitor's copy lasts until it returns.
  using Visitor = std::function<void(const SliceCopy&)>;
  void visit_received(uint32_t rank, const Visitor& visit) const;
  // Of what others receive, and itself.
  void visit_sent(uint32_t rank, const Visitor& visit) const;
  // Of all ranks: by move, then by place in the target's mesh.
  void visit_all(const Visitor& visit) const;

  PlanTotals totals() const;
  // Bytes of the types of a move, for each element.
  uint64_t element_bytes(uint32_t move) const;

 private:
  class Balance;
  struct Route;
  struct Walk;

  Plan(std::vector<Move> moves, Hash128 hash) : moves_(std::move(moves)), hash_(hash) {}
  void visit_target(uint32_t move, uint32_t place, Walk& walk, const Visitor& visit) const;
  void visit_source(uint32_t move, uint32_t place, Walk& walk, const Visitor& visit) const;
  void find_senders(uint32_t move, const Layout::Holding& target, Walk& walk) const;
  void choose_senders(uint32_t move, Balance& balance);
  uint64_t first_choice(uint32_t move, uint64_t atom, const Layout::Holding& target) const;

  std::vector<Move> moves_;
  Hash128 hash_;
  std::vector<std::shared_ptr<const Route>> routes_;  // by move; equal pairs share one
  // Where there is a choice: the replica that sends, by atom, target and lane.
  std::vector<uint32_t> choices_;
  std::vector<uint64_t> first_choice_;  // by move
};

// Plans that were made, by their hash. One thread at a time.
class PlanCache {
 public:
  Result<std::shared_ptr<const Plan>> plan(std::vector<Move> moves,
                                           std::vector<uint32_t> hosts = {});
  uint64_t made() const { return made_; }

 private:
  std::list<std::shared_ptr<const Plan>> plans_;  // the last used first
  std::map<Hash128, std::list<std::shared_ptr<const Plan>>::iterator> by_hash_;
  uint64_t made_ = 0;
};

}  // namespace tutti
