#include "fabric/heap.h"

#include <algorithm>

#include "base/assert.h"

namespace tutti {

namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLargePage = 2 << 20;

// Processors guess by some middle bits of an address where in the first cache its line is (AMD
// since Zen). Ranks allocate alike, so buffers that are used together would agree in these bits,
// and an all_reduce of two within the caches take five times as long. An odd number of pages keeps
// them apart.
constexpr uint64_t kSkewBytes = 37 * kPage;

constexpr uint64_t round_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

uint64_t granted(uint64_t bytes) {
  const uint64_t least = std::max<uint64_t>(bytes, 1);
  return round_up(least, least >= kPage ? kPage : kLine);
}

uint64_t part_bytes(uint64_t bytes, uint32_t slots) {
  return (bytes / slots / kLargePage - 1) * kLargePage + kSkewBytes;
}

}  // namespace

std::pair<uint64_t, uint64_t> Heap::part_of(uint64_t bytes, uint32_t slots, uint32_t slot) {
  const uint64_t each = part_bytes(bytes, slots);
  return {slot * each, (slot + 1) * each};
}

Result<std::unique_ptr<Heap>> Heap::open(Parking& parking, std::unique_ptr<Mapping> mapping,
                                         uint32_t slots, uint32_t slot) {
  if (slots == 0 || slot >= slots)
    return fail(Code::invalid, "slot {} of {} cannot be", slot, slots);
  const uint64_t least = 2 * kBoardBytes + 4 * kLargePage;
  if (mapping->bytes().size() / slots < least)
    return fail(Code::invalid, "a heap of {} is too small for {} processes; each takes {} or more",
                format_bytes(mapping->bytes().size()), slots, format_bytes(least));
  return std::unique_ptr<Heap>(new Heap(parking, std::move(mapping), slots, slot));
}

Heap::Heap(Parking& parking, std::unique_ptr<Mapping> mapping, uint32_t slots, uint32_t slot)
    : parking_(parking),
      mapping_(std::move(mapping)),
      bytes_(mapping_->bytes()),
      slots_(slots),
      slot_(slot),
      part_bytes_(part_bytes(bytes_.size(), slots)),
      scratch_begin_(part(slot) + round_up(part_bytes_ / 2, kPage)),
      scratch_end_(part(slot) + part_bytes_),
      populated_end_(scratch_begin_) {
  free_[scratch_begin_] = scratch_end_ - scratch_begin_;
}

Board& Heap::board(uint32_t slot) const { return *reinterpret_cast<Board*>(at(part(slot))); }

std::optional<uint64_t> Heap::find(const void* address, uint64_t bytes) const {
  const auto* first = static_cast<const std::byte*>(address);
  if (first < bytes_.data() || first >= bytes_.data() + bytes_.size()) return std::nullopt;
  const auto offset = static_cast<uint64_t>(first - bytes_.data());
  if (bytes > bytes_.size() - offset) return std::nullopt;
  return offset;
}

Result<uint64_t> Heap::allocate(uint64_t bytes) {
  const uint64_t wanted = granted(bytes);
  const uint64_t alignment = wanted >= kPage ? kPage : kLine;
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const uint64_t offset = round_up(hole->first, alignment);
    const uint64_t end = hole->first + hole->second;
    if (offset + wanted > end || offset + wanted < offset) continue;
    if (offset + wanted > populated_end_) {
      const uint64_t upto = std::min(round_up(offset + wanted, kPage), scratch_end_);
      TRY_DO(parking_.populate(bytes_.subspan(populated_end_, upto - populated_end_)));
      populated_end_ = upto;
    }
    const uint64_t before = offset - hole->first;
    free_.erase(hole);
    if (before != 0) free_[offset - before] = before;
    if (offset + wanted != end) free_[offset + wanted] = end - offset - wanted;
    used_[offset] = wanted;
    allocated_bytes_ += wanted;
    return offset;
  }
  return fail(Code::exhausted, "{} do not fit into what is left of this process's {} of the heap",
              format_bytes(bytes), format_bytes(scratch_end_ - scratch_begin_));
}

void Heap::free(uint64_t offset) {
  const auto used = used_.find(offset);
  TUTTI_ASSERT(used != used_.end(), "what is freed was allocated");
  allocated_bytes_ -= used->second;
  auto hole = free_.emplace(offset, used->second).first;
  used_.erase(used);
  const auto next = std::next(hole);
  if (next != free_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole == free_.begin()) return;
  const auto previous = std::prev(hole);
  if (previous->first + previous->second != hole->first) return;
  previous->second += hole->second;
  free_.erase(hole);
}

void Heap::clear_scratch() {
  TUTTI_ASSERT(used_.empty(), "scratch is cleared before it is used");
  parking_.discard(bytes_.subspan(scratch_begin_, scratch_end_ - scratch_begin_));
  populated_end_ = scratch_begin_;
}

MutableBytes Heap::vault() const {
  const uint64_t begin = part(slot_) + kBoardBytes;
  return bytes_.subspan(begin, scratch_begin_ - begin);
}

}  // namespace tutti
