// One rank's part in the execution of a plan, slice after slice: it pulls what it is to hold from
// where others have it. An Operation makes it, and tells it where their tensors lie.
//
// A tensor here is one move of the plan in one of its types; they are numbered through.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/box_copy.h"
#include "fabric/call.h"
#include "fabric/fold_tree.h"
#include "fabric/plan.h"

namespace tutti {

// Of what comes from another host, pulled at once: all lanes of a slice together, but no less than
// a page of each.
constexpr uint64_t kFarSliceBytes = 512 << 10;
constexpr uint64_t kLeastFarSliceBytes = 4 << 10;

class Resharding {
 public:
  struct Slice {
    uint32_t tensor = 0;
    uint32_t first_source = 0;
    uint32_t source_count = 0;
    DType type = DType::f32;
    ReduceOp op = ReduceOp::sum;
    BoxCopy box;
  };

  // Refuses a call that this rank cannot do its part of, among members with these ranks; `far` says
  // of each whether it is on another host. Without, none is.
  static Result<std::unique_ptr<Resharding>> make(const Call& call, uint32_t rank,
                                                  std::span<const uint32_t> members,
                                                  std::vector<bool> far = {});

  uint32_t tensors() const { return static_cast<uint32_t>(input_bytes_.size()); }
  // Of a tensor of ours: how large, and whether others read it.
  uint64_t input_bytes(uint32_t tensor) const { return input_bytes_[tensor]; }
  bool shared(uint32_t tensor) const { return shared_[tensor]; }
  bool reads_from(uint32_t member) const { return reads_from_[member]; }
  bool is_read_by(uint32_t member) const { return is_read_by_[member]; }

  // Slices of which some or all come from other hosts: somebody else copies them (far_reshard.h).
  std::span<const Slice> far_slices() const { return far_slices_; }
  std::span<const uint32_t> sources(const Slice& slice) const {
    return std::span(sources_).subspan(slice.first_source, slice.source_count);
  }
  const FoldTree& tree(const Slice& slice) const { return trees_.at(slice.source_count); }

  // Of the others.
  uint64_t bytes() const { return bytes_; }
  uint64_t bytes_done() const { return bytes_done_; }

  // Where a member's tensor lies.
  using Locate = std::function<const std::byte*(uint32_t member, uint32_t tensor)>;
  // Copies a slice or some of this host, for about a millisecond; whether that was all.
  bool copy_some(const Locate& locate, bool streaming);

 private:
  explicit Resharding(const Call& call) : call_(call) {}
  Result<void> check(uint32_t rank) const;
  Result<void> check_tensor(uint32_t rank, uint32_t move, uint32_t tensor) const;
  void list_slices(const SliceCopy& copy, const std::map<uint32_t, uint32_t>& members);
  void do_slice(const Slice& slice, const Locate& locate, bool streaming);

  const Call& call_;
  std::vector<uint32_t> first_tensor_;  // by move
  std::vector<uint64_t> input_bytes_;
  std::vector<uint64_t> output_bytes_;
  std::vector<bool> shared_;
  std::vector<bool> reads_from_;
  std::vector<bool> is_read_by_;
  std::vector<bool> far_;  // by member
  std::vector<Slice> slices_;
  std::vector<Slice> far_slices_;
  std::vector<uint32_t> sources_;  // members
  std::map<uint32_t, FoldTree> trees_;
  size_t next_ = 0;
  uint64_t bytes_ = 0;
  uint64_t bytes_done_ = 0;
};

}  // namespace tutti
