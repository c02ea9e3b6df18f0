#include "world/timer_wheel.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "base/assert.h"

namespace tutti {

namespace {
constexpr size_t kRunEntries = 64;  // enough for the prefetch below to reach ahead
constexpr uint32_t kRunSlots = 16;  // bounds how much later inserts land in the heap
constexpr size_t kPrefetchAhead = 12;
constexpr size_t kPrefetchSoon = 8;  // by then the timer itself is there
constexpr size_t kPrefetchNext = 4;  // by then what was asked for soon is
constexpr uint32_t kPrefetchMoves = 16;
constexpr ptrdiff_t kLine = 64;
}  // namespace

TimerWheel::TimerWheel(Hints hints) : hints_(hints) {}

TimerWheel::~TimerWheel() {
  TUTTI_ASSERT(size_ == 0, "a timer outlived its wheel");
  for (Level& level : levels_) {
    if (level.slots == nullptr) continue;
    for (uint32_t slot = 0; slot < kSlots; ++slot) std::free(level.slots[slot].entries);
    std::free(level.slots);
  }
}

void TimerWheel::insert(Timer& timer, int64_t at_ns) {
  timer.at_ns_ = std::max(at_ns, taken_at_ns_);
  timer.sequence_ = next_sequence_++;
  ++size_;
  place({timer.at_ns_, timer.sequence_, &timer});
}

void TimerWheel::place(const Entry& entry) {
  const uint64_t tick = static_cast<uint64_t>(entry.at_ns) >> kTickBits;
  if (tick < cursor_) return heap_insert(entry);
  const uint64_t different = tick ^ cursor_;
  uint32_t level = 0;
  if (different != 0) level = static_cast<uint32_t>(std::bit_width(different) - 1) / kDigitBits;
  append(level, (tick >> (level * kDigitBits)) & (kSlots - 1), entry);
}

void TimerWheel::append(uint32_t level_index, uint32_t slot_index, const Entry& entry) {
  Level& level = levels_[level_index];
  if (level.slots == nullptr) {
    level.slots = static_cast<Slot*>(std::calloc(kSlots, sizeof(Slot)));
    TUTTI_ASSERT(level.slots != nullptr, "out of memory for timers");
  }
  Slot& slot = level.slots[slot_index];
  if (slot.size == slot.capacity) {
    slot.capacity = slot.capacity == 0 ? 4 : slot.capacity * 2;
    slot.entries = static_cast<Entry*>(std::realloc(slot.entries, slot.capacity * sizeof(Entry)));
    TUTTI_ASSERT(slot.entries != nullptr, "out of memory for timers");
  }
  entry.timer->slot_ = static_cast<uint16_t>(level_index * kSlots + slot_index);
  entry.timer->index_ = slot.size;
  slot.entries[slot.size++] = entry;
  level.occupied[slot_index / 64] |= 1ULL << (slot_index % 64);
  level.summary |= 1ULL << (slot_index / 64);
}

void TimerWheel::release(Level& level, uint32_t slot_index) {
  Slot& slot = level.slots[slot_index];
  std::free(slot.entries);
  slot = {};
  level.occupied[slot_index / 64] &= ~(1ULL << (slot_index % 64));
  if (level.occupied[slot_index / 64] == 0) level.summary &= ~(1ULL << (slot_index / 64));
}

void TimerWheel::remove(Timer& timer) {
  --size_;
  const uint16_t where = std::exchange(timer.slot_, Timer::kUnarmed);
  if (where == kInHeap) return heap_remove(timer.index_);
  if (where == kInRun) {
    const Entry wanted{timer.at_ns_, timer.sequence_, &timer};
    auto it =
        std::lower_bound(run_.begin() + static_cast<ptrdiff_t>(run_next_), run_.end(), wanted);
    TUTTI_ASSERT(it != run_.end() && it->timer == &timer, "the run lost a timer");
    it->timer = nullptr;
    return;
  }
  Level& level = levels_[where / kSlots];
  Slot& slot = level.slots[where % kSlots];
  const Entry last = slot.entries[--slot.size];
  if (last.timer != &timer) {
    slot.entries[timer.index_] = last;
    last.timer->index_ = timer.index_;
  }
  if (slot.size == 0) release(level, where % kSlots);
}

Timer* TimerWheel::take(int64_t until_ns) {
  for (;;) {
    while (run_next_ < run_.size() && run_[run_next_].timer == nullptr) ++run_next_;
    const bool have_run = run_next_ < run_.size();
    if (!heap_.empty() && (!have_run || heap_.front() < run_[run_next_])) {
      if (heap_.front().at_ns > until_ns) return nullptr;
      const Entry entry = heap_.front();
      heap_remove(0);
      return finish(entry);
    }
    if (have_run) {
      if (run_[run_next_].at_ns > until_ns) return nullptr;
      prefetch_coming();
      return finish(run_[run_next_++]);
    }
    if (!gather(until_ns)) return nullptr;
  }
}

// A timer is scattered over memory with what waits on it: the frame around it, and whatever its
// owner touches. Each is asked for while the timers before it are handled.
void TimerWheel::prefetch_coming() const {
  if (run_next_ + kPrefetchAhead < run_.size()) {
    const char* coming = reinterpret_cast<const char*>(run_[run_next_ + kPrefetchAhead].timer);
    if (coming != nullptr) {
      for (ptrdiff_t line = -1; line <= 2; ++line) __builtin_prefetch(coming + line * kLine);
    }
  }
  if (hints_.soon == nullptr) return;
  if (run_next_ + kPrefetchSoon < run_.size()) {
    const Timer* soon = run_[run_next_ + kPrefetchSoon].timer;
    if (soon != nullptr) hints_.soon(*soon);
  }
  if (run_next_ + kPrefetchNext < run_.size()) {
    const Timer* next = run_[run_next_ + kPrefetchNext].timer;
    if (next != nullptr) hints_.next(*next);
  }
}

Timer* TimerWheel::finish(const Entry& entry) {
  entry.timer->slot_ = Timer::kUnarmed;
  taken_at_ns_ = entry.at_ns;
  --size_;
  return entry.timer;
}

// Fills the run with the next occupied slots, unless they begin after `until_ns`.
bool TimerWheel::gather(int64_t until_ns) {
  run_.clear();
  run_next_ = 0;
  for (;;) {
    const int found = find_from(levels_[0], cursor_ & (kSlots - 1));
    if (found < 0) {
      if (!cascade(until_ns)) return false;
      continue;
    }
    const uint64_t block = cursor_ & ~static_cast<uint64_t>(kSlots - 1);
    const auto first = static_cast<uint32_t>(found);
    if (static_cast<int64_t>((block | first) << kTickBits) > until_ns) return false;
    uint32_t slot = first;
    uint32_t end = first + 1;
    while (true) {
      drain_slot(slot);
      end = slot + 1;
      if (run_.size() >= kRunEntries || end == kSlots) break;
      const int next = find_from(levels_[0], end);
      if (next < 0 || static_cast<uint32_t>(next) >= first + kRunSlots) break;
      slot = static_cast<uint32_t>(next);
    }
    cursor_ = block + end;
    if (end == kSlots) enter_block();
    std::sort(run_.begin(), run_.end());
    return true;
  }
}

void TimerWheel::drain_slot(uint32_t slot_index) {
  Slot& slot = levels_[0].slots[slot_index];
  for (uint32_t i = 0; i < slot.size; ++i) {
    if (i + kPrefetchMoves < slot.size)
      __builtin_prefetch(&slot.entries[i + kPrefetchMoves].timer->slot_, 1);
    slot.entries[i].timer->slot_ = kInRun;
    run_.push_back(slot.entries[i]);
  }
  release(levels_[0], slot_index);
}

// The lowest level has nothing left in its block: moves the next occupied slot of a higher level
// down. False when there is none before `until_ns`.
bool TimerWheel::cascade(int64_t until_ns) {
  for (uint32_t level_index = 1; level_index < kLevels; ++level_index) {
    Level& level = levels_[level_index];
    const uint32_t shift = level_index * kDigitBits;
    const int found = find_from(level, (cursor_ >> shift) & (kSlots - 1));
    if (found < 0) continue;
    const uint64_t above = cursor_ >> (shift + kDigitBits) << (shift + kDigitBits);
    const uint64_t start = above | (static_cast<uint64_t>(found) << shift);
    if (static_cast<int64_t>(start << kTickBits) > until_ns) return false;
    cursor_ = std::max(cursor_, start);
    move_down(level, static_cast<uint32_t>(found));
    return true;
  }
  return false;
}

// The cursor was carried into a new block of the lowest level: what stands for that block higher up
// must come down before anything is taken from it.
void TimerWheel::enter_block() {
  for (uint32_t level_index = kLevels - 1; level_index > 0; --level_index) {
    const uint32_t shift = level_index * kDigitBits;
    if ((cursor_ & ((1ULL << shift) - 1)) != 0) continue;
    const auto slot = static_cast<uint32_t>((cursor_ >> shift) & (kSlots - 1));
    Level& level = levels_[level_index];
    if (level.slots != nullptr && level.slots[slot].size != 0) move_down(level, slot);
  }
}

void TimerWheel::move_down(Level& level, uint32_t slot) {
  const Slot moved = level.slots[slot];
  level.slots[slot] = {};
  release(level, slot);
  for (uint32_t i = 0; i < moved.size; ++i) {
    if (i + kPrefetchMoves < moved.size)
      __builtin_prefetch(&moved.entries[i + kPrefetchMoves].timer->slot_, 1);
    place(moved.entries[i]);
  }
  std::free(moved.entries);
}

int TimerWheel::find_from(const Level& level, uint32_t slot) {
  if (level.summary == 0 || slot >= kSlots) return -1;
  const uint32_t word = slot / 64;
  const uint64_t rest = level.occupied[word] & (~0ULL << (slot % 64));
  if (rest != 0) return static_cast<int>(word * 64 + std::countr_zero(rest));
  const uint64_t later = word == 63 ? 0 : level.summary & (~0ULL << (word + 1));
  if (later == 0) return -1;
  const auto next = static_cast<uint32_t>(std::countr_zero(later));
  return static_cast<int>(next * 64 + std::countr_zero(level.occupied[next]));
}

int64_t TimerWheel::earliest_ns() const {
  if (size_ == 0) return kNothing;
  int64_t earliest = heap_.empty() ? kNothing : heap_.front().at_ns;
  for (size_t i = run_next_; i < run_.size(); ++i) {
    if (run_[i].timer == nullptr) continue;
    earliest = std::min(earliest, run_[i].at_ns);
    break;
  }
  if (earliest != kNothing) return earliest;
  for (uint32_t level_index = 0; level_index < kLevels; ++level_index) {
    const uint32_t shift = level_index * kDigitBits;
    const int found = find_from(levels_[level_index], (cursor_ >> shift) & (kSlots - 1));
    if (found < 0) continue;
    const uint64_t above = cursor_ >> (shift + kDigitBits) << (shift + kDigitBits);
    const uint64_t start = above | (static_cast<uint64_t>(found) << shift);
    return std::max(taken_at_ns_, static_cast<int64_t>(start << kTickBits));
  }
  return taken_at_ns_;
}

void TimerWheel::heap_set(uint32_t index, const Entry& entry) {
  heap_[index] = entry;
  entry.timer->slot_ = kInHeap;
  entry.timer->index_ = index;
}

void TimerWheel::heap_insert(const Entry& entry) {
  heap_.push_back(entry);
  heap_set(static_cast<uint32_t>(heap_.size()) - 1, entry);
  heap_up(static_cast<uint32_t>(heap_.size()) - 1);
}

void TimerWheel::heap_remove(uint32_t index) {
  const Entry last = heap_.back();
  heap_.pop_back();
  if (index == heap_.size()) return;
  heap_set(index, last);
  heap_up(index);
  heap_down(last.timer->index_);
}

void TimerWheel::heap_up(uint32_t index) {
  const Entry entry = heap_[index];
  while (index > 0 && entry < heap_[(index - 1) / 2]) {
    heap_set(index, heap_[(index - 1) / 2]);
    index = (index - 1) / 2;
  }
  heap_set(index, entry);
}

void TimerWheel::heap_down(uint32_t index) {
  const Entry entry = heap_[index];
  for (;;) {
    uint32_t child = 2 * index + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
    if (!(heap_[child] < entry)) break;
    heap_set(index, heap_[child]);
    index = child;
  }
  heap_set(index, entry);
}

}  // namespace tutti
