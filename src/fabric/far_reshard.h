// The slices of a reshard that come from other hosts, on the engine: one rank's part.
//
// Who has something for ranks elsewhere offers it to them: a message that says where in its heap
// the table of its tensors lies. They pull slices from there, some at a time, with gets of bytes
// that lie apart, which the owner's transport puts together piece by piece: its program does
// nothing, and no copy of a tensor is ever made. What was pulled is dealt out, or folded with the
// other lanes. Last of all everybody tells those it has read from, who wait for that: after it
// tensors may change.
#pragma once

#include <string>
#include <vector>

#include "fabric/rail.h"
#include "fabric/resharding.h"

namespace tutti {

struct FarReshardOptions {
  Rail rail;  // of its ranks only the transport's scope and call count
  std::shared_ptr<const Resharding> work;
  std::vector<uint32_t> ranks;           // by member
  std::vector<const std::byte*> near;    // by member: the table of one of this host, or null
  uint32_t index = 0;                    // ours
  const std::byte* heap = nullptr;       // of this host
  uint64_t table = 0;                    // where in it ours lies
  std::vector<const std::byte*> inputs;  // our tensors
  std::vector<std::byte*> outputs;
  uint64_t signature = 0;  // equal for all that mean the same call
  std::string text;        // what we call, for those who do not
};

class FarReshard {
 public:
  explicit FarReshard(FarReshardOptions options) : options_(std::move(options)) {}

  Task<Result<void>> run();

 private:
  struct Offer;

  bool far(uint32_t member) const { return options_.near[member] == nullptr; }
  Task<Result<void>> meet();
  Task<Result<void>> learn_tables();
  Task<Result<void>> part();
  Task<Result<void>> pull_slices();
  Task<Result<void>> pull(const Resharding::Slice& slice, std::vector<std::byte>& staging);
  Task<Result<void>> pull_some();
  Task<Result<void>> pull_one(const Resharding::Slice& slice, std::vector<std::byte>& staging);
  Task<Result<void>> pull_lanes(const Resharding::Slice& slice, std::vector<std::byte>& staging);
  Task<Result<void>> get(const Resharding::Slice& slice, uint32_t member, MutableBytes into);
  uint64_t place_of(uint32_t member, uint32_t tensor) const;

  FarReshardOptions options_;
  std::vector<std::vector<uint64_t>> tables_;  // by member, of those elsewhere
  std::vector<uint64_t> table_places_;         // by member
  size_t next_ = 0;                            // of the slices
};

}  // namespace tutti
