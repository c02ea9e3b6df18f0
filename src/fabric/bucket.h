// Sums of many tensors in few calls: small tensors of a type are joined until a bucket is full,
// large ones go alone, where they lie.
//
//   CO_TRY(auto buckets, Buckets::make(group, tensors, {.op = ReduceOp::mean}));
//   … gradient 7 is there: buckets->ready(7); …
//   buckets->wait(timeout);                         // then the next step may begin
//
// A bucket's call begins when all its tensors are ready and those of the buckets before it are: all
// members begin the same calls in the same order, whatever order their tensors become ready in.
// Tensors that lie side by side are used where they lie, others are copied into the heap and back.
// Every element is summed by itself, in the one order, so bits do not depend on the bucket size.
//
// One thread at a time uses it, as the group. Tensors and the group outlive it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/group.h"

namespace tutti {

// Large enough that a call's ticks do not matter, small enough that the first sums are under way
// while most gradients are still to be computed.
constexpr uint64_t kBucketBytes = 4 << 20;

struct BucketTensor {
  DType type = DType::f32;
  uint64_t elements = 0;
  // Of each of BucketsOptions::nodes what this rank has joined; without lanes one, its summand.
  std::vector<const std::byte*> inputs;
  std::byte* output = nullptr;  // may be the only input
};

// The same for all members, but for `nodes`.
struct BucketsOptions {
  ReduceOp op = ReduceOp::sum;
  uint64_t bytes = kBucketBytes;  // a tensor of as many goes alone
  uint32_t lanes = 0;
  std::vector<LaneRange> nodes;
  std::string site;
  std::shared_ptr<void> keeps;  // see Call
};

class Buckets {
 public:
  static Result<std::unique_ptr<Buckets>> make(std::shared_ptr<Group> group,
                                               std::vector<BucketTensor> tensors,
                                               BucketsOptions options);
  ~Buckets();
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

  // The tensor does not change any more: begins what can begin.
  Result<void> ready(uint32_t tensor);
  // All have been ready(): until all outputs are there. After a deadline it may be called again.
  Result<void> wait(Duration timeout);
  Task<Result<void>> wait(World& world, Duration timeout);

  size_t size() const { return buckets_.size(); }
  // Every time, here: into the heap, and back.
  uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Bucket {
    DType type = DType::f32;
    std::vector<uint32_t> tensors;
    uint64_t elements = 0;
    std::vector<const std::byte*> inputs;  // whole, as the call takes them
    std::byte* output = nullptr;
    std::vector<std::byte*> copies;  // by input, or null: it is used where it lies
    bool unpacks = false;
    uint32_t ready = 0;
    std::shared_ptr<Operation> operation;  // while it is under way
  };

  Buckets(std::shared_ptr<Group> group, std::vector<BucketTensor> tensors, BucketsOptions options);
  Result<void> check() const;
  void deal();
  Result<void> place(Bucket& bucket);
  Result<std::byte*> room(const Bucket& bucket);
  Result<void> begin(Bucket& bucket);
  Result<void> begin_ready();
  Result<void> all_ready() const;
  void finish(Bucket& bucket);
  uint64_t bytes_of(uint32_t tensor) const;

  std::shared_ptr<Group> group_;
  std::vector<BucketTensor> tensors_;
  BucketsOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<uint32_t> bucket_of_;  // by tensor
  std::vector<bool> is_ready_;       // by tensor
  std::vector<uint64_t> staged_;     // scratch to be freed
  uint32_t begun_ = 0;               // buckets of this round
  uint32_t done_ = 0;
  uint64_t copied_bytes_ = 0;
};

}  // namespace tutti
