// Random collectives, and what they must give: every rank knows from the seed what all bring along,
// so each compares its result with a plain computation in the one order of reduction, bit for bit.
//
// The seed differs with the epoch too: whatever was sent in another would be seen.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fabric/call.h"

namespace tutti::sims {

struct DrawnCall {
  CallKind kind = CallKind::barrier;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  uint64_t elements = 0;  // of a reduction the whole vector, else of a member at least
  bool uneven = false;    // members have different shares
  bool in_place = false;
  uint32_t root = 0;
  int32_t distance = 1;
  uint32_t lanes = 0;    // 0: every member is one
  uint32_t members = 1;  // of the group
  uint64_t salt = 0;     // of what is brought along

  uint64_t share(uint32_t member) const;                 // of all_gather, gather, reduce_scatter
  uint64_t exchanged(uint32_t from, uint32_t to) const;  // of all_to_all
};

// The same for all who ask alike. At most about so many elements for a member.
DrawnCall draw_call(uint64_t seed, uint32_t members, uint64_t most_elements);

// What all members of a reduction get, computed once: the last few are kept.
class Reductions {
 public:
  const std::vector<std::byte>& of(const DrawnCall& drawn);

 private:
  std::map<uint64_t, std::vector<std::byte>> kept_;  // by salt
  std::vector<uint64_t> order_;
};

// One member's side of a call: memory, and what must be in it afterwards.
class CheckedCall {
 public:
  CheckedCall(const DrawnCall& drawn, uint32_t index);
  CheckedCall(const CheckedCall&) = delete;
  CheckedCall& operator=(const CheckedCall&) = delete;

  // This outlives it.
  Call call(std::string site);
  // Empty when every bit is right.
  std::string wrong(Reductions& reductions) const;

 private:
  std::vector<std::byte> expected(Reductions& reductions) const;
  void add_lanes(Call& call);
  uint64_t output_elements() const;

  DrawnCall drawn_;
  uint32_t index_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  std::vector<std::vector<std::byte>> parts_;
};

}  // namespace tutti::sims
