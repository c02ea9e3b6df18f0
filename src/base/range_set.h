// A set of numbers as ranges: hosts of a tree, ranks of a job. Small when its members are many and
// neighbours, whatever their count. A value; two equal sets have equal ranges.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tutti {

class RangeSet {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;  // included
    bool operator==(const Range&) const = default;
  };

  RangeSet() = default;
  explicit RangeSet(uint32_t member) { add(member); }
  RangeSet(uint32_t first, uint32_t last) { add(first, last); }

  bool empty() const { return ranges_.empty(); }
  uint64_t size() const;
  bool contains(uint32_t member) const;
  uint32_t front() const { return ranges_.front().first; }
  uint32_t back() const { return ranges_.back().last; }
  // Of a set that is kept: `for (range : a.minus(b).ranges())` would walk over what is gone.
  std::span<const Range> ranges() const& { return ranges_; }
  std::span<const Range> ranges() const&& = delete;
  // How many members are smaller.
  uint64_t place_of(uint32_t member) const;
  // The member that has `place` smaller ones; place < size().
  uint32_t at(uint64_t place) const;
  std::vector<uint32_t> members() const;

  void add(uint32_t member) { add(member, member); }
  void add(uint32_t first, uint32_t last);
  void remove(uint32_t member) { *this = minus(RangeSet(member)); }
  void add(const RangeSet& other) { *this = plus(other); }
  void remove(const RangeSet& other) { *this = minus(other); }

  RangeSet plus(const RangeSet& other) const;
  RangeSet minus(const RangeSet& other) const;
  RangeSet common(const RangeSet& other) const;
  bool meets(const RangeSet& other) const;
  bool operator==(const RangeSet&) const = default;

  // "0-2,4"; parse() takes the same.
  std::string text() const;
  static Result<RangeSet> parse(std::string_view text);

  // First, last, first, last, …: for messages. from_pairs() refuses what is not in order.
  std::vector<uint32_t> pairs() const;
  static Result<RangeSet> from_pairs(std::span<const uint32_t> pairs);

 private:
  std::vector<Range> ranges_;  // ascending, apart by at least one
};

}  // namespace tutti
