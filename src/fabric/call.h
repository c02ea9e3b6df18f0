// What a rank asks of its group: the options of every collective, in one struct.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/board.h"
#include "fabric/fold_tree.h"

namespace tutti {

class Plan;

// Lanes of a reduction that a rank has joined already, and where they are.
struct LanePart {
  LaneRange lanes;
  const std::byte* input = nullptr;
};

// Memory may be anywhere; what is in the heap is used where it lies, the rest is copied into it and
// back. Until the call is done, inputs must not change and outputs must not be read.
struct Call {
  CallKind kind = CallKind::barrier;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  // Of all_reduce and reduce_scatter the whole vector, of broadcast and shift what is moved, of
  // all_gather and gather this rank's share, of scatter the share of every rank.
  uint64_t elements = 0;
  // Of the array, where all members bring as many elements: theirs must be alike. One dimension is
  // as good as none.
  std::vector<uint64_t> shape;
  const std::byte* input = nullptr;
  // May overlap the input in any way. That costs a copy of it, unless both are the same
  // (all_reduce, broadcast), or one is this rank's equal share of the other (all_gather, gather,
  // reduce_scatter).
  std::byte* output = nullptr;
  // How many there are and how many there is room for, if somebody shall look whether that is
  // enough. Of all_gather over several hosts the second is needed if the output is not in the heap.
  std::optional<uint64_t> input_elements = {};
  std::optional<uint64_t> output_elements = {};
  uint32_t root = 0;     // of broadcast, gather and scatter: an index in the group
  int32_t distance = 1;  // of shift: to the member so many places on
  // One output for all, at the same place in the heap: each member writes its share of it, once.
  bool shared_output = false;
  // Of a reduction: what this rank holds instead of `input`. Without, every rank is one lane.
  uint32_t lanes = 0;
  std::vector<LanePart> parts;
  // Elements for each member: of reduce_scatter those it gets, of all_to_all those this rank sends
  // it. Empty: as many for each.
  std::vector<uint64_t> counts;
  // Of all_to_all: elements that come from each member, if `counts` is there.
  std::vector<uint64_t> incoming;
  // Kept until the call is over, also when nobody waits for it any more: what its memory belongs
  // to.
  std::shared_ptr<void> keeps;
  // Of reduce_scatter: called for block after block of the reduced share, in order, while the block
  // is in the cache, and over several hosts once with the whole share; `first` is the block's first
  // element in the share.
  std::function<void(uint64_t first, std::byte* block, uint64_t elements)> update;
  // Of reshard: what goes where, and this rank's tensors in the source's and in the target's
  // layout, for each move each of its types. Empty, or null, where the rank holds nothing. A plan
  // without ranks outside of the group; one-sided: a rank that only sends does nothing but wait.
  std::shared_ptr<const Plan> plan;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::string site;  // where the caller is, for people: "train.py:41"
};

}  // namespace tutti
