// Bytes that lie apart: runs of one length, repeated by loops. What a rank gets of a tile of
// another's tensor, and how it is asked for over the wire.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace tutti {

struct Strides {
  static constexpr uint32_t kMostLoops = 8;
  static constexpr size_t kMostEncoded = 8 + kMostLoops * 16;
  struct Loop {
    uint64_t count = 0;
    uint64_t stride = 0;
    bool operator==(const Loop&) const = default;
  };
  uint64_t offset = 0;  // all in bytes
  uint64_t run = 0;
  uint32_t loop_count = 0;
  std::array<Loop, kMostLoops> loops{};  // the innermost first

  bool operator==(const Strides&) const = default;
  uint64_t bytes() const;
  // Another loop around those that are there; what is contiguous is one run.
  void repeat(uint64_t count, uint64_t stride);
  // Whether all of it is within so many bytes, and is as much as it says: of what others ask for.
  bool fits(uint64_t all, uint64_t bytes) const;
  // What is at `first` and after it, when all runs are put together.
  void gather(const std::byte* from, uint64_t first, MutableBytes into) const;

  // Without the offset. Little-endian: the run, then count and stride of each loop.
  std::string encode() const;
  static Result<Strides> decode(uint64_t offset, Bytes encoded);
};

}  // namespace tutti
