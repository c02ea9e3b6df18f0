// Reads a copy of a rank's flight record (flight.h), also one that was cut off after its brief
// part, torn by a writer that was at it, or made of anything at all: whatever comes out makes
// sense.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/range_set.h"
#include "fabric/flight.h"

namespace tutti {

constexpr std::string_view flight_phase_name(FlightPhase phase) {
  constexpr std::string_view names[] = {"none", "begun", "arrived", "worked", "done", "failed"};
  return names[static_cast<int>(phase)];
}

struct SeenCall {
  uint32_t number = 0;  // of the rank's calls of any group
  uint32_t call = 0;    // of its group; 0: it makes the group
  uint32_t group = 0;
  CallKind kind = CallKind::none;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  uint64_t elements = 0;
  FlightPhase phase = FlightPhase::none;
  int64_t began_ns = 0;
  int64_t ended_ns = 0;
  std::string site;

  bool under_way() const { return phase != FlightPhase::done && phase != FlightPhase::failed; }
  uint64_t bytes() const { return elements * dtype_bytes(type); }
  // "call 42, all_reduce of 1000 f32, sum", without its site.
  std::string text() const;
  bool means_the_same(const SeenCall& other) const;
};

struct SeenGroup {
  uint64_t key = 0;
  std::string name;
  uint32_t size = 0;
  RangeSet ranks;       // empty when they were too irregular to be written down
  uint32_t begun = 0;   // calls so far
  std::string failure;  // why it is over; "" while it is not
  SeenCall now;         // the first that is not done, or the last
};

struct SeenParcel {
  ParcelKind kind = ParcelKind::none;
  uint32_t rank = 0;  // with whom
  uint64_t tag = 0;
  uint64_t bytes = 0;
  int64_t began_ns = 0;
  std::string site;
  // "a message of 400 bytes from rank 3 with tag 7".
  std::string text() const;
};

struct SeenFlight {
  uint64_t epoch = 0;
  uint64_t gang = 0;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  int32_t pid = 0;
  bool left = false;
  bool joining = false;              // it sleeps until all have joined
  std::optional<uint32_t> waits_in;  // it sleeps in this one of its groups
  std::optional<SeenParcel> parcel;  // or for this
  std::vector<SeenGroup> groups;     // of this epoch
  std::vector<SeenCall> calls;       // the last of this epoch, oldest first; none when cut off
  uint64_t earlier_calls = 0;        // of the rank, that are not in `calls`
};

// Code::corrupt when it is none, Code::unsupported when it is of another layout.
Result<SeenFlight> read_flight(Bytes bytes);

}  // namespace tutti
