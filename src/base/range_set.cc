#include "base/range_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/assert.h"

namespace tutti {
namespace {

using Range = RangeSet::Range;

// Adds a range that begins at or after the beginning of the last one.
void append(std::vector<Range>& ranges, Range range) {
  if (!ranges.empty() && range.first <= uint64_t{ranges.back().last} + 1) {
    ranges.back().last = std::max(ranges.back().last, range.last);
  } else {
    ranges.push_back(range);
  }
}

Result<uint32_t> parse_member(std::string_view text, std::string_view whole) {
  uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end)
    return fail(Code::invalid, "'{}' is not a list of numbers; write it like 0,3-5", whole);
  return value;
}

}  // namespace

uint64_t RangeSet::size() const {
  uint64_t size = 0;
  for (const Range& range : ranges_) size += uint64_t{range.last} - range.first + 1;
  return size;
}

bool RangeSet::contains(uint32_t member) const {
  const auto after = std::ranges::upper_bound(ranges_, member, {}, &Range::first);
  return after != ranges_.begin() && std::prev(after)->last >= member;
}

uint64_t RangeSet::place_of(uint32_t member) const {
  uint64_t place = 0;
  for (const Range& range : ranges_) {
    if (range.first >= member) break;
    place += uint64_t{std::min(range.last, member - 1)} - range.first + 1;
  }
  return place;
}

uint32_t RangeSet::at(uint64_t place) const {
  for (const Range& range : ranges_) {
    const uint64_t here = uint64_t{range.last} - range.first + 1;
    if (place < here) return range.first + static_cast<uint32_t>(place);
    place -= here;
  }
  TUTTI_ASSERT(false, "there is no such place");
  return 0;
}

std::vector<uint32_t> RangeSet::members() const {
  std::vector<uint32_t> members;
  members.reserve(size());
  for (const Range& range : ranges_)
    for (uint64_t member = range.first; member <= range.last; ++member)
      members.push_back(static_cast<uint32_t>(member));
  return members;
}

void RangeSet::add(uint32_t first, uint32_t last) {
  TUTTI_ASSERT(first <= last, "a range is not empty");
  if (ranges_.empty() || first >= ranges_.back().first) {
    append(ranges_, {first, last});
  } else {
    RangeSet one;
    one.ranges_.push_back({first, last});
    add(one);
  }
}

RangeSet RangeSet::plus(const RangeSet& other) const {
  RangeSet sum;
  sum.ranges_.reserve(ranges_.size() + other.ranges_.size());
  size_t mine = 0;
  size_t theirs = 0;
  while (mine < ranges_.size() || theirs < other.ranges_.size()) {
    const bool take_mine =
        theirs == other.ranges_.size() ||
        (mine < ranges_.size() && ranges_[mine].first <= other.ranges_[theirs].first);
    append(sum.ranges_, take_mine ? ranges_[mine++] : other.ranges_[theirs++]);
  }
  return sum;
}

RangeSet RangeSet::minus(const RangeSet& other) const {
  RangeSet rest;
  auto taken = other.ranges_.begin();
  for (Range range : ranges_) {
    while (taken != other.ranges_.end() && taken->last < range.first) ++taken;
    bool any = true;
    for (auto cut = taken; cut != other.ranges_.end() && cut->first <= range.last; ++cut) {
      if (cut->first > range.first) rest.ranges_.push_back({range.first, cut->first - 1});
      any = cut->last < range.last;
      if (!any) break;
      range.first = cut->last + 1;
    }
    if (any) rest.ranges_.push_back(range);
  }
  return rest;
}

RangeSet RangeSet::common(const RangeSet& other) const {
  RangeSet both;
  auto theirs = other.ranges_.begin();
  for (const Range& range : ranges_) {
    while (theirs != other.ranges_.end() && theirs->last < range.first) ++theirs;
    for (auto cut = theirs; cut != other.ranges_.end() && cut->first <= range.last; ++cut)
      both.ranges_.push_back({std::max(range.first, cut->first), std::min(range.last, cut->last)});
  }
  return both;
}

bool RangeSet::meets(const RangeSet& other) const {
  auto theirs = other.ranges_.begin();
  for (const Range& range : ranges_) {
    while (theirs != other.ranges_.end() && theirs->last < range.first) ++theirs;
    if (theirs != other.ranges_.end() && theirs->first <= range.last) return true;
  }
  return false;
}

std::string RangeSet::text() const {
  std::string text;
  for (const Range& range : ranges_) {
    if (!text.empty()) text += ',';
    text += range.first == range.last ? fmt::format("{}", range.first)
                                      : fmt::format("{}-{}", range.first, range.last);
  }
  return text;
}

Result<RangeSet> RangeSet::parse(std::string_view text) {
  RangeSet set;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view piece = rest.substr(0, comma);
    const size_t dash = std::min(piece.find('-'), piece.size());
    TRY(const uint32_t first, parse_member(piece.substr(0, dash), text));
    uint32_t last = first;
    if (dash < piece.size()) {
      TRY(last, parse_member(piece.substr(dash + 1), text));
    }
    if (last < first)
      return fail(Code::invalid, "'{}' goes backwards; write {}-{}", piece, last, first);
    set.add(first, last);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return set;
}

std::vector<uint32_t> RangeSet::pairs() const {
  std::vector<uint32_t> pairs;
  pairs.reserve(2 * ranges_.size());
  for (const Range& range : ranges_) {
    pairs.push_back(range.first);
    pairs.push_back(range.last);
  }
  return pairs;
}

Result<RangeSet> RangeSet::from_pairs(std::span<const uint32_t> pairs) {
  if (pairs.size() % 2 != 0) return fail(Code::corrupt, "a set of ranges lacks its last end");
  RangeSet set;
  set.ranges_.reserve(pairs.size() / 2);
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const Range range{pairs[i], pairs[i + 1]};
    const bool apart = set.ranges_.empty() || range.first > uint64_t{set.back()} + 1;
    if (range.first > range.last || !apart)
      return fail(Code::corrupt, "the ranges of a set are not in order");
    set.ranges_.push_back(range);
  }
  return set;
}

}  // namespace tutti
