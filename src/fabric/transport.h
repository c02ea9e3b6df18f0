// How a rank moves bytes to and from ranks of other hosts.
//
// A Transport belongs to the strands of one World, the rank's engine: on Linux a loop in a thread
// of its own, in simulation the simulated process itself. All calls are made there. Every call
// ends: with success, with the error given to end_epoch(), or cancelled with its strand. A
// connection that breaks, or brings bytes that are not what was sent, is made anew within the epoch
// and what was not acknowledged is sent again; callers never hear of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "fabric/strides.h"
#include "world/task.h"

namespace tutti {

// Names one message from one rank to another; may be used again once the message is there.
struct Tag {
  uint64_t scope = 0;   // the key of a group and epoch, or whatever the caller keeps apart
  uint64_t number = 0;  // within it
  auto operator<=>(const Tag&) const = default;
};

// Why some calls cannot be done.
struct Refusal {
  Tag from;
  Error why;
  std::optional<uint32_t> left = {};  // the rank that takes part no longer, if that is why
};

// What is urgent overtakes what is not, between two pieces of it.
enum class Priority : uint8_t { urgent, normal, bulk };

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;

  // From now on this epoch; nothing of another is sent, taken or answered. Calls under way end as
  // after end_epoch().
  virtual void begin_epoch(uint64_t epoch) = 0;
  // Every call under way, and every later one until begin_epoch(), ends with this error.
  virtual void end_epoch(Error why) = 0;

  // Every call whose tag is of this scope, and of this number or a greater one, ends with this
  // error, here and at these ranks, now and for the rest of the epoch. Returns when they know, or
  // after a second.
  virtual Task<void> refuse(std::vector<uint32_t> ranks, Refusal refusal) = 0;
  // Who has left, as refusals of this epoch said.
  virtual std::vector<uint32_t> left() const = 0;
  // For whose leave calls of this scope are refused, if that is why.
  virtual std::optional<uint32_t> left_in(uint64_t scope) const = 0;
  // With whom there is a connection, ours or theirs.
  virtual std::vector<uint32_t> linked() const = 0;

  // Returns when the receiver has all of it. The bytes must not change until then.
  virtual Task<Result<void>> send(uint32_t rank, Tag tag, Bytes bytes,
                                  Priority priority = Priority::normal) = 0;
  // As many bytes as were sent with this tag, or it is an error at both ends, naming both sizes.
  virtual Task<Result<void>> receive(uint32_t rank, Tag tag, MutableBytes into) = 0;

  // One-sided, without the help of a program there: bytes at an offset of the heap of that rank's
  // host. A put returns when the bytes are there; who shall know is then sent an empty message.
  virtual Task<Result<void>> put(uint32_t rank, uint64_t offset, Bytes from,
                                 Priority priority = Priority::normal) = 0;
  // Bytes that lie apart there come one after the other: the other side puts them together, piece
  // by piece as they are sent. The tag is for refuse() alone.
  virtual Task<Result<void>> get(uint32_t rank, Strides from, MutableBytes into,
                                 Priority priority = Priority::normal, Tag tag = {}) = 0;
  Task<Result<void>> get(uint32_t rank, uint64_t offset, MutableBytes into,
                         Priority priority = Priority::normal) {
    return get(rank, Strides{.offset = offset, .run = into.size()}, into, priority);
  }
};

}  // namespace tutti
