// The memory that the processes of a job on one host have in common: one arena, mapped whole by
// each at an address of its own, so that a place in it is an offset. It is as large as the numbers
// allow and costs what is touched.
//
// Every process has an equal part (a slot) in which it alone allocates, so no lock is shared with
// somebody who may be killed. A part is: its Board; the vault, which its successor finds as it was;
// and scratch, which begins empty with every process.
//
//   | board 8 MiB | vault … | scratch … |   times slots
//
// One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/result.h"
#include "fabric/board.h"
#include "world/memory.h"
#include "world/parking.h"

namespace tutti {

class Heap {
 public:
  // The mapping is of the whole arena.
  static Result<std::unique_ptr<Heap>> open(Parking& parking, std::unique_ptr<Mapping> mapping,
                                            uint32_t slots, uint32_t slot);

  // Where the part of a slot begins and ends, in a heap of so many bytes.
  static std::pair<uint64_t, uint64_t> part_of(uint64_t bytes, uint32_t slots, uint32_t slot);

  uint64_t size() const { return bytes_.size(); }
  std::pair<uint64_t, uint64_t> part_of(uint32_t slot) const {
    return part_of(bytes_.size(), slots_, slot);
  }
  uint32_t slots() const { return slots_; }
  uint32_t slot() const { return slot_; }
  Board& board(uint32_t slot) const;

  std::byte* at(uint64_t offset) const { return bytes_.data() + offset; }
  // Where these bytes are, if they are in the heap.
  std::optional<uint64_t> find(const void* address, uint64_t bytes) const;

  // Scratch: aligned to a cache line, or to a page from a page on; memory is there when it returns.
  // Not zeroed: what was freed is given again as it is.
  Result<uint64_t> allocate(uint64_t bytes);
  void free(uint64_t offset);
  uint64_t allocated_bytes() const { return allocated_bytes_; }
  // Forgets and gives back all scratch of a process that had this slot before. Only when nobody
  // can be using it any more.
  void clear_scratch();

  MutableBytes vault() const;

 private:
  Heap(Parking& parking, std::unique_ptr<Mapping> mapping, uint32_t slots, uint32_t slot);
  uint64_t part(uint32_t slot) const { return slot * part_bytes_; }

  Parking& parking_;
  std::unique_ptr<Mapping> mapping_;
  MutableBytes bytes_;
  uint32_t slots_;
  uint32_t slot_;
  uint64_t part_bytes_;
  uint64_t scratch_begin_;
  uint64_t scratch_end_;
  std::map<uint64_t, uint64_t> free_;  // offset to bytes; neighbours are merged
  std::map<uint64_t, uint64_t> used_;
  uint64_t populated_end_;  // scratch before this has memory
  uint64_t allocated_bytes_ = 0;
};

}  // namespace tutti
