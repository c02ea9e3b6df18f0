// Addresses are cut into spans, each of objects of one size, which the span's number tells: so an
// object needs no header. A span without objects may become one of another size. Nothing is given
// back to the kernel.
#include "cli/dense_heap.h"

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/assert.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace tutti::cli {
void use_dense_heap() {}
uint64_t dense_heap_bytes() { return 0; }
}  // namespace tutti::cli

#else

namespace tutti::cli {
namespace {

// Sizes are multiples of it. What needs an alignment of 16 has a size that is one of that, and lies
// at one.
constexpr size_t kStep = 8;
constexpr size_t kLargest = 4096;
constexpr size_t kSpanBytes = 32 << 10;
constexpr size_t kHeapBytes = size_t{64} << 30;  // of addresses; more than machines we know have
constexpr size_t kSpans = kHeapBytes / kSpanBytes;
constexpr size_t kHugePage = 2 << 20;

struct Free {
  Free* next;
};

// Those with room for more are in a list of their size; number 0 is no span.
struct Span {
  Free* free;  // objects that were given back
  uint32_t next;
  uint32_t previous;
  uint16_t live;
  uint16_t begun;  // objects that were ever given out
  uint16_t steps;  // the size of each
  bool listed;
};

class DenseHeap {
 public:
  bool reserve() {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* heap = mmap(nullptr, kHeapBytes + kHugePage, PROT_READ | PROT_WRITE, flags, -1, 0);
    void* spans = mmap(nullptr, kSpans * sizeof(Span), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (heap == MAP_FAILED || spans == MAP_FAILED) return false;
    const uintptr_t past = reinterpret_cast<uintptr_t>(heap) % kHugePage;
    base_ = static_cast<std::byte*>(heap) + (past == 0 ? 0 : kHugePage - past);
    madvise(base_, kHeapBytes, MADV_HUGEPAGE);
    spans_ = static_cast<Span*>(spans);
    size_ = kHeapBytes;
    return true;
  }
  bool owns(const void* object) const { return offset_of(object) < size_; }
  uint64_t in_use() const { return in_use_; }

  // nullptr when all spans are used.
  void* take(size_t size) {
    const size_t steps = size == 0 ? 1 : (size + kStep - 1) / kStep;
    if (with_room_[steps] == 0 && !begin_span(steps)) return nullptr;
    const uint32_t number = with_room_[steps];
    Span& span = spans_[number];
    Free* object = span.free;
    if (object != nullptr) {
      span.free = object->next;
    } else {
      std::byte* at = base_ + number * kSpanBytes + span.begun++ * steps * kStep;
      object = new (at) Free{};
    }
    ++span.live;
    in_use_ += steps * kStep;
    const bool full = span.free == nullptr && (span.begun + 1U) * steps * kStep > kSpanBytes;
    if (full) unlist(number);
    return object;
  }

  void give_back(void* object) {
    const auto number = static_cast<uint32_t>(offset_of(object) / kSpanBytes);
    Span& span = spans_[number];
    in_use_ -= span.steps * kStep;
    span.free = new (object) Free{span.free};
    if (!span.listed) list(number);
    // The only one of its size stays: its objects may come and go.
    if (--span.live != 0 || (span.next == 0 && span.previous == 0)) return;
    unlist(number);
    span.next = empty_;
    empty_ = number;
  }

 private:
  size_t offset_of(const void* object) const {
    return reinterpret_cast<uintptr_t>(object) - reinterpret_cast<uintptr_t>(base_);
  }
  bool begin_span(size_t steps) {
    uint32_t number = empty_;
    if (number != 0) {
      empty_ = spans_[number].next;
    } else {
      if (used_ == kSpans) return false;
      number = used_++;
    }
    spans_[number] = Span{.steps = static_cast<uint16_t>(steps)};
    list(number);
    return true;
  }
  void list(uint32_t number) {
    Span& span = spans_[number];
    uint32_t& first = with_room_[span.steps];
    span.next = first;
    span.previous = 0;
    span.listed = true;
    if (first != 0) spans_[first].previous = number;
    first = number;
  }
  void unlist(uint32_t number) {
    Span& span = spans_[number];
    if (span.previous != 0) spans_[span.previous].next = span.next;
    if (span.previous == 0) with_room_[span.steps] = span.next;
    if (span.next != 0) spans_[span.next].previous = span.previous;
    span.listed = false;
  }

  std::byte* base_ = nullptr;
  size_t size_ = 0;  // 0 while it is not used
  Span* spans_ = nullptr;
  uint32_t used_ = 1;
  uint32_t empty_ = 0;
  uint64_t in_use_ = 0;
  std::array<uint32_t, kLargest / kStep + 1> with_room_{};
};

constinit DenseHeap heap;
constinit thread_local bool uses_heap = false;

}  // namespace

void use_dense_heap() { uses_heap = uses_heap || heap.reserve(); }
uint64_t dense_heap_bytes() { return heap.in_use(); }

}  // namespace tutti::cli

using tutti::cli::heap;
using tutti::cli::uses_heap;

// NOLINTBEGIN(cppcoreguidelines-no-malloc,misc-new-delete-overloads)
void* operator new(size_t size) {
  void* object = uses_heap && size <= tutti::cli::kLargest ? heap.take(size) : nullptr;
  if (object == nullptr) object = std::malloc(size == 0 ? 1 : size);
  TUTTI_ASSERT(object != nullptr, "there is memory");
  return object;
}
void operator delete(void* object) noexcept {
  if (!heap.owns(object)) return std::free(object);
  TUTTI_ASSERT(uses_heap, "one thread uses the dense heap");
  heap.give_back(object);
}
void operator delete(void* object, size_t) noexcept { operator delete(object); }
// Spans begin at multiples of any alignment, so that objects whose size is one of theirs have it.
void* operator new(size_t size, std::align_val_t alignment) {
  const auto multiple = static_cast<size_t>(alignment);
  const bool fits = size <= tutti::cli::kLargest && size % multiple == 0;
  void* object = uses_heap && fits ? heap.take(size) : nullptr;
  const size_t rounded = (size + multiple - 1) / multiple * multiple;
  if (object == nullptr) object = std::aligned_alloc(multiple, rounded);
  TUTTI_ASSERT(object != nullptr, "there is memory");
  return object;
}
void operator delete(void* object, std::align_val_t) noexcept { operator delete(object); }
void operator delete(void* object, size_t, std::align_val_t) noexcept { operator delete(object); }
// NOLINTEND(cppcoreguidelines-no-malloc,misc-new-delete-overloads)

#endif
