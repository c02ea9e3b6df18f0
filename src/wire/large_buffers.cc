#include "wire/large_buffers.h"

#include <bit>
#include <vector>

namespace tutti::wire {

namespace {

using Memory = std::unique_ptr<std::byte[]>;

constexpr bool kKeep =
#ifdef __SANITIZE_ADDRESS__
    false;  // so that a use after its end is seen
#else
    true;
#endif

// A blob may outlive what its thread kept.
thread_local bool kept_is_gone = false;

// Sizes are kept apart by steps of an eighth of their leading bit.
constexpr size_t kSteps = 8;

struct SizeClass {
  explicit SizeClass(size_t size) {
    const size_t step = std::bit_floor(size) / kSteps;
    bytes = (size + step - 1) / step * step;
    const auto doublings = static_cast<size_t>(std::bit_width(bytes)) - 1;
    index = doublings * kSteps + (bytes - std::bit_floor(bytes)) / (std::bit_floor(bytes) / kSteps);
  }
  size_t bytes;
  size_t index;
};

class Kept {
 public:
  ~Kept() { kept_is_gone = true; }

  Memory take(SizeClass size) {
    std::vector<Memory>& buffers = classes_[size.index];
    if (buffers.empty()) return std::make_unique_for_overwrite<std::byte[]>(size.bytes);
    Memory buffer = std::move(buffers.back());
    buffers.pop_back();
    bytes_ -= size.bytes;
    return buffer;
  }
  void give(Memory buffer, SizeClass size) {
    if (!kKeep || bytes_ + size.bytes > kMostKept) return;
    classes_[size.index].push_back(std::move(buffer));
    bytes_ += size.bytes;
  }
  size_t bytes() const { return bytes_; }

 private:
  // On the heap: the Python extension has little room for what belongs to threads.
  std::vector<std::vector<Memory>> classes_ = std::vector<std::vector<Memory>>(64 * kSteps);
  size_t bytes_ = 0;
};

thread_local Kept kept;

}  // namespace

std::shared_ptr<std::byte[]> take_large_buffer(size_t size) {
  const SizeClass whole(size);
  Memory buffer = kept.take(whole);
  const auto give_back = [whole](std::byte* memory) {
    Memory returned(memory);
    if (!kept_is_gone) kept.give(std::move(returned), whole);
  };
  return {buffer.release(), give_back};
}

size_t kept_large_bytes() { return kept.bytes(); }

}  // namespace tutti::wire
