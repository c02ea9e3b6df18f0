// A hierarchical timing wheel: insert and remove in constant time, timers taken in the order of
// (time, insertion), exactly. Both worlds keep their timers here; a simulation of a million hosts
// spends most of its time in it.
//
// Five levels of 4,096 slots; a slot of the lowest is 4.1 µs wide, the whole spans all of time. An
// entry stands at the level of the highest digit in which its time differs from the cursor's, and
// moves down when the cursor gets there. To take timers in order, the next few occupied slots of
// the lowest level are gathered and sorted into a *run*; what is inserted before the end of the
// run later on goes to a small heap beside it. Taking them from an array lets us prefetch the
// timers to come, which are scattered over memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "world/timer.h"

namespace tutti {

class TimerWheel {
 public:
  // Called some timers ahead of one that will be taken, to prefetch what firing it will touch:
  // first what the timer points to, then what that points to. Both or none.
  struct Hints {
    void (*soon)(const Timer& timer) = nullptr;
    void (*next)(const Timer& timer) = nullptr;
  };
  TimerWheel() : TimerWheel(Hints{}) {}
  explicit TimerWheel(Hints hints);
  ~TimerWheel();
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  static constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();

  // A time before the last one taken counts as that one.
  void insert(Timer& timer, int64_t at_ns);
  void remove(Timer& timer);

  // The earliest timer at or before `until_ns`, disarmed; nullptr when there is none.
  Timer* take(int64_t until_ns);
  // When the timer that take() gave last was due.
  int64_t taken_at_ns() const { return taken_at_ns_; }

  // No timer is due before this; kNothing when there are none. Cheap, may be early.
  int64_t earliest_ns() const;
  size_t size() const { return size_; }

 private:
  struct Entry {
    int64_t at_ns;
    uint64_t sequence;
    Timer* timer;
    bool operator<(const Entry& other) const {
      return at_ns != other.at_ns ? at_ns < other.at_ns : sequence < other.sequence;
    }
  };
  // Grown by hand: slots are zero pages until used, a wheel with one timer costs little.
  struct Slot {
    Entry* entries;
    uint32_t size;
    uint32_t capacity;
  };
  static constexpr int kDigitBits = 12;
  static constexpr uint32_t kSlots = 1U << kDigitBits;
  static constexpr int kLevels = 5;
  static constexpr int kTickBits = 12;  // 4,096 ns
  static constexpr uint16_t kInRun = kLevels * kSlots;
  static constexpr uint16_t kInHeap = kInRun + 1;
  struct Level {
    Slot* slots = nullptr;
    std::array<uint64_t, kSlots / 64> occupied{};
    uint64_t summary = 0;
  };

  void place(const Entry& entry);
  void append(uint32_t level, uint32_t slot, const Entry& entry);
  void release(Level& level, uint32_t slot);
  static int find_from(const Level& level, uint32_t slot);
  bool gather(int64_t until_ns);
  bool cascade(int64_t until_ns);
  void drain_slot(uint32_t slot);
  void enter_block();
  void move_down(Level& level, uint32_t slot);
  void heap_insert(const Entry& entry);
  void heap_remove(uint32_t index);
  void heap_up(uint32_t index);
  void heap_down(uint32_t index);
  void heap_set(uint32_t index, const Entry& entry);
  void prefetch_coming() const;
  Timer* finish(const Entry& entry);

  Hints hints_;
  std::array<Level, kLevels> levels_;
  std::vector<Entry> run_;
  size_t run_next_ = 0;
  std::vector<Entry> heap_;
  uint64_t cursor_ = 0;  // in ticks; inserts before it go to the heap
  uint64_t next_sequence_ = 0;
  size_t size_ = 0;
  int64_t taken_at_ns_ = 0;
};

}  // namespace tutti
