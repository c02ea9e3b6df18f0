// For tests: a recorder in memory that forked children share, and a look at what it holds.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/assert.h"
#include "record/reader.h"
#include "record/recorder.h"

namespace tutti {

class SharedRing {
 public:
  SharedRing(Clock& clock, const Recorder::Options& options)
      : size_(*Recorder::size_bytes(options)) {
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TUTTI_ASSERT(memory != MAP_FAILED, "tests have memory");
    memory_ = static_cast<std::byte*>(memory);
    auto view = std::make_unique<View>(MutableBytes(memory_, size_));
    recorder_ = Recorder::over(std::move(view), clock, {.host = "node7", .pid = getpid()}, options);
  }
  ~SharedRing() {
    recorder_.reset();
    munmap(memory_, size_);
  }
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  Recorder& recorder() { return *recorder_; }
  void close() { recorder_.reset(); }
  std::byte* memory() { return memory_; }

  // A copy made while others may be writing, word by word as a reader's kernel would.
  std::string bytes() const {
    std::string copy(size_, '\0');
    for (size_t offset = 0; offset < size_; offset += sizeof(uint64_t)) {
      auto& word = *reinterpret_cast<uint64_t*>(memory_ + offset);
      const uint64_t value = std::atomic_ref(word).load(std::memory_order_relaxed);
      std::memcpy(copy.data() + offset, &value, sizeof value);
    }
    return copy;
  }
  Recording read() const {
    const std::string copy = bytes();
    auto recording = parse_recording(as_bytes(copy));
    TUTTI_ASSERT(recording.has_value(), "a recorder's own memory is a recording");
    return *std::move(recording);
  }

 private:
  struct View final : Mapping {
    explicit View(MutableBytes bytes) : Mapping(bytes) {}
  };
  size_t size_;
  std::byte* memory_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace tutti
