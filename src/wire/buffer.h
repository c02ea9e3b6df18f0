// A queue of bytes in one piece of memory: written at the end, read at the front. Memory is taken
// when first needed and is not cleared before it is written; draining keeps it for the next use.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "base/bytes.h"

namespace tutti::wire {

class Buffer {
 public:
  Bytes bytes() const { return {memory_.get() + begin_, end_ - begin_}; }
  const std::byte* data() const { return memory_.get() + begin_; }
  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  size_t capacity() const { return capacity_; }

  // Free room after the last byte, at least `size` of it; commit() makes it part of the queue.
  MutableBytes room(size_t size) {
    if (capacity_ - end_ < size) make_room(size);
    return {memory_.get() + end_, capacity_ - end_};
  }
  void commit(size_t size) { end_ += size; }
  // Room for exactly `size` more bytes, committed.
  std::byte* extend(size_t size) {
    std::byte* at = room(size).data();
    end_ += size;
    return at;
  }
  void append(Bytes bytes) {
    if (!bytes.empty()) std::memcpy(extend(bytes.size()), bytes.data(), bytes.size());
  }
  void consume(size_t size) {
    begin_ += size;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  void clear() { begin_ = end_ = 0; }
  // Gives the memory back; only when empty.
  void release() {
    TUTTI_ASSERT(empty(), "bytes would be lost");
    *this = Buffer();
  }

 private:
  void make_room(size_t size) {
    const size_t kept = this->size();
    if (capacity_ >= kept + size && begin_ >= kept) {
      std::memcpy(memory_.get(), memory_.get() + begin_, kept);
    } else {
      const size_t capacity = std::bit_ceil(std::max(kept + size, kSmallest));
      auto memory = std::make_unique_for_overwrite<std::byte[]>(capacity);
      if (kept != 0) std::memcpy(memory.get(), memory_.get() + begin_, kept);
      memory_ = std::move(memory);
      capacity_ = capacity;
    }
    begin_ = 0;
    end_ = kept;
  }

  static constexpr size_t kSmallest = 64;
  std::unique_ptr<std::byte[]> memory_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// How much to read at once: little while little comes, more when reads fill their room. A million
// quiet connections must fit in memory, a busy one must not read in small pieces.
class ReadSize {
 public:
  size_t get() const { return size_; }
  void was(size_t asked, size_t got) { was(got == asked, got); }
  void was(bool filled, size_t got) {
    if (filled) {
      size_ = std::min(4 * size_, kLargest);
      small_in_a_row_ = 0;
    } else if (got >= size_ / 4) {
      small_in_a_row_ = 0;
    } else if (++small_in_a_row_ == kSmallBeforeShrinking) {
      size_ = kSmallest;
    }
  }
  // Nothing came for long: begin small again.
  void rest() {
    size_ = kSmallest;
    small_in_a_row_ = 0;
  }
  // Lets go of memory that is larger than what is read by now; at once when little is.
  void shrink(Buffer& buffer) const {
    const size_t most = size_ == kSmallest ? size_ : 4 * size_;
    if (buffer.empty() && buffer.capacity() > most) buffer.release();
  }

 private:
  static constexpr size_t kSmallest = 64;
  static constexpr size_t kLargest = 64 * 1024;
  static constexpr uint32_t kSmallBeforeShrinking = 16;
  size_t size_ = kSmallest;
  uint32_t small_in_a_row_ = 0;
};

}  // namespace tutti::wire
