#include "wire/large_buffers.h"

#include <array>
#include <bit>
#include <vector>

namespace tutti::wire {

namespace {

using Buffer = std::unique_ptr<std::byte[]>;

constexpr bool kKeep =
#ifdef __SANITIZE_ADDRESS__
    false;  // so that a use after its end is seen
#else
    true;
#endif

// A blob may outlive what its thread kept.
thread_local bool kept_is_gone = false;

// By size, a power of two.
class Kept {
 public:
  ~Kept() { kept_is_gone = true; }

  Buffer take(size_t size) {
    std::vector<Buffer>& buffers = classes_[class_of(size)];
    if (buffers.empty()) return std::make_unique_for_overwrite<std::byte[]>(size);
    Buffer buffer = std::move(buffers.back());
    buffers.pop_back();
    bytes_ -= size;
    return buffer;
  }
  void give(Buffer buffer, size_t size) {
    if (!kKeep || bytes_ + size > kMostKept) return;
    classes_[class_of(size)].push_back(std::move(buffer));
    bytes_ += size;
  }
  size_t bytes() const { return bytes_; }

 private:
  static size_t class_of(size_t size) { return static_cast<size_t>(std::countr_zero(size)); }

  std::array<std::vector<Buffer>, 64> classes_;
  size_t bytes_ = 0;
};

thread_local Kept kept;

}  // namespace

std::shared_ptr<std::byte[]> take_large_buffer(size_t size) {
  const size_t whole = std::bit_ceil(size);
  Buffer buffer = kept.take(whole);
  const auto give_back = [whole](std::byte* memory) {
    Buffer returned(memory);
    if (!kept_is_gone) kept.give(std::move(returned), whole);
  };
  return {buffer.release(), give_back};
}

size_t kept_large_bytes() { return kept.bytes(); }

}  // namespace tutti::wire
