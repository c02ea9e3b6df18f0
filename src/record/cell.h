// Numbers that readers see live: one word of the recording each, made by Recorder::counter and
// Recorder::gauge. Any thread may use one; a copy is the same number. A default one (also what a
// disabled recorder gives) does nothing. None may be used after its Recorder is gone.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti {

// Only grows: bytes sent, retries.
class Counter {
 public:
  Counter() = default;
  void add(uint64_t n = 1) const {
    if (word_ == nullptr) return;
    std::atomic_ref(*word_).fetch_add(static_cast<int64_t>(n), std::memory_order_relaxed);
  }

 private:
  friend class Recorder;
  explicit Counter(int64_t* word) : word_(word) {}
  int64_t* word_ = nullptr;
};

// Goes up and down: queue length, memory in use.
class Gauge {
 public:
  Gauge() = default;
  void set(int64_t value) const {
    if (word_ == nullptr) return;
    std::atomic_ref(*word_).store(value, std::memory_order_relaxed);
  }
  void add(int64_t change) const {
    if (word_ == nullptr) return;
    std::atomic_ref(*word_).fetch_add(change, std::memory_order_relaxed);
  }

 private:
  friend class Recorder;
  explicit Gauge(int64_t* word) : word_(word) {}
  int64_t* word_ = nullptr;
};

}  // namespace tutti
