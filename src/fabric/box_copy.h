// A box that lies in two row-major arrays: what of it is contiguous in both, and how that repeats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/fold.h"
#include "fabric/layout.h"
#include "fabric/strides.h"

namespace tutti {

struct BoxCopy {
  struct Loop {
    uint64_t count = 0;
    uint64_t to_stride = 0;
    uint64_t from_stride = 0;
  };
  uint64_t to_offset = 0;  // all in bytes
  uint64_t from_offset = 0;
  uint64_t run = 0;  // contiguous in both
  uint32_t loop_count = 0;
  std::array<Loop, kMostDimensions> loops{};  // the innermost first

  // `slice` is a part of both boxes, each of which is an array.
  static BoxCopy make(const Box& slice, const Box& to, const Box& from, uint64_t element_bytes);

  uint64_t bytes() const;
  // The same in pieces of at most so many bytes, of whole elements if the limit is of them.
  void split(uint64_t most_bytes, std::vector<BoxCopy>& into) const;
  // The same between one of the two arrays and bytes one after the other.
  BoxCopy from_packed() const;
  BoxCopy to_packed() const;
  bool to_is_contiguous() const;
  // Where its bytes lie when the array that it is copied from is at an offset.
  Strides from_strides(uint64_t array_offset) const;
  // Calls visit(to offset, from offset) for what the loops from `first` on repeat.
  template <class Visit>
  void repeat(uint32_t first, Visit&& visit) const;
};

void copy_box(const BoxCopy& box, std::byte* to, const std::byte* from, bool streaming);
void zero_box(const BoxCopy& box, std::byte* to);
// Target and sources of `work` are the arrays; its elements are of no matter.
void fold_box(const BoxCopy& box, const FoldTree& tree, FoldWork work);

template <class Visit>
void BoxCopy::repeat(uint32_t first, Visit&& visit) const {
  std::array<uint64_t, kMostDimensions> at{};
  uint64_t to = to_offset;
  uint64_t from = from_offset;
  while (true) {
    visit(to, from);
    uint32_t i = first;
    for (; i < loop_count; ++i) {
      to += loops[i].to_stride;
      from += loops[i].from_stride;
      if (++at[i] < loops[i].count) break;
      to -= loops[i].to_stride * loops[i].count;
      from -= loops[i].from_stride * loops[i].count;
      at[i] = 0;
    }
    if (i >= loop_count) return;
  }
}

}  // namespace tutti
