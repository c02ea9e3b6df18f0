#include "world/sim/memory.h"

#include <cerrno>
#include <cstdlib>
#include <forward_list>

#include "world/sim/simulator.h"

namespace tutti {

// From calloc, so that what nobody touches costs nothing.
class Arena {
 public:
  Arena(uint64_t size, AlikePool& pool) : pool_(pool), size_(size) {}
  ~Arena() { std::free(data_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  uint64_t size() const { return size_; }

  // At the same place from the first who uses it to the last; nullptr when there is no memory.
  std::byte* use() {
    if (data_ == nullptr) {
      data_ = static_cast<std::byte*>(std::calloc(1, size_));
      if (data_ == nullptr) return nullptr;
      if (!resting_.empty()) resting_.copy_to({data_, size_});
      resting_ = AlikeBytes();
    }
    ++users_;
    return data_;
  }
  void leave() {
    if (--users_ != 0 || size_ > kSmall) return;
    resting_ = AlikeBytes(pool_, {data_, size_});
    std::free(data_);
    data_ = nullptr;
  }
  // Only what is used is anywhere.
  bool has_at(const std::byte* place, uint64_t offset) const {
    return data_ != nullptr && place == data_ + offset;
  }

 private:
  static constexpr uint64_t kSmall = 16 << 10;  // so much is compared in a microsecond or two
  AlikePool& pool_;
  std::byte* data_ = nullptr;
  AlikeBytes resting_;
  uint64_t size_;
  uint32_t users_ = 0;
};

// Of a word in a mapping, which has it until it is told: nobody waits.
class SimMemory::Watch final : public ListNode {
 public:
  Watch(ArenaMapping& mapping, uint64_t offset, WakeTaker& taker, uint64_t tag)
      : mapping_(mapping), offset_(offset), taker_(taker), tag_(tag) {}
  bool watches(const std::atomic<uint32_t>& word) const;
  // Leaves the mapping and tells; it is gone then.
  void tell();

 private:
  ArenaMapping& mapping_;
  uint64_t offset_;
  WakeTaker& taker_;
  uint64_t tag_;
};

class SimMemory::ArenaMapping final : public Mapping {
 public:
  // Of an arena that is in use for it.
  ArenaMapping(std::shared_ptr<Arena> arena, uint64_t offset, MutableBytes bytes)
      : Mapping(bytes), arena_(std::move(arena)), offset_(offset) {}
  ~ArenaMapping() override { rest(); }

  void rest() const override {
    if (bytes_.data() == nullptr) return;
    bytes_ = {static_cast<std::byte*>(nullptr), bytes_.size()};
    arena_->leave();
  }
  bool has_at(const std::atomic<uint32_t>& word, uint64_t offset) const {
    return arena_->has_at(reinterpret_cast<const std::byte*>(&word), offset_ + offset);
  }
  Watch& watch(uint64_t offset, WakeTaker& taker, uint64_t tag) const {
    auto& self = const_cast<ArenaMapping&>(*this);
    return watches_.emplace_front(self, offset, taker, tag);
  }
  void forget(const Watch& told) {
    watches_.remove_if([&](const Watch& one) { return &one == &told; });
  }

 private:
  void wake() const override { bytes_ = {arena_->use() + offset_, bytes_.size()}; }

  std::shared_ptr<Arena> arena_;
  uint64_t offset_;
  mutable std::forward_list<Watch> watches_;
};

bool SimMemory::Watch::watches(const std::atomic<uint32_t>& word) const {
  return mapping_.has_at(word, offset_);
}

void SimMemory::Watch::tell() {
  WakeTaker& taker = taker_;
  const uint64_t tag = tag_;
  mapping_.forget(*this);
  taker.on_wake(tag);
}

namespace {

Result<std::shared_ptr<Arena>> arena_of(SimHost& host, const Handle& handle) {
  TRY(OpenThing thing, host.handles().find(handle));
  if (thing.arena == nullptr) return fail(Code::invalid, "handle {} is no arena", handle.number());
  return std::move(thing.arena);
}

}  // namespace

class SimMemory::Wait final : public Waiter, private Timer {
 public:
  Wait(SimMemory& memory, const std::atomic<uint32_t>& word, uint32_t expected, Instant deadline)
      : memory_(memory), word_(word), expected_(expected), deadline_(deadline) {}

  bool await_ready() {
    if (cancelled_already()) {
      result_ = fail(cancelled_error());
      return true;
    }
    return word_.load() != expected_;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    memory_.waiting_.push_back(*this);
    if (deadline_ != kNever) memory_.host_.clock().arm(*this, deadline_);
  }
  Result<void> await_resume() { return std::move(result_); }

  bool waits_on(const std::atomic<uint32_t>& word) const { return &word == &word_; }
  void woken() { finish({}); }

 private:
  void finish(Result<void> result) {
    memory_.host_.clock().disarm(*this);
    result_ = std::move(result);
    wake();
  }
  void fire() override { finish(fail(Code::deadline, "the word did not change in time")); }
  void on_cancel() override { finish(fail(cancelled_error())); }

  SimMemory& memory_;
  const std::atomic<uint32_t>& word_;
  uint32_t expected_;
  Instant deadline_;
  Result<void> result_;
};

Result<Handle> SimMemory::create_arena(std::string name, uint64_t size) {
  if (size == 0) return fail_errno(EINVAL, "arena {} of no bytes", name);
  auto arena = std::make_shared<Arena>(size, host_.simulator().alike());
  if (arena->use() == nullptr) return fail_errno(ENOMEM, "arena {} of {} bytes", name, size);
  arena->leave();
  return host_.handles().add({.arena = std::move(arena)});
}

Result<uint64_t> SimMemory::arena_size(const Handle& handle) {
  TRY(auto arena, arena_of(host_, handle));
  return arena->size();
}

Result<std::unique_ptr<Mapping>> SimMemory::map(const Handle& handle, uint64_t offset,
                                                uint64_t size, bool) {
  TRY(auto arena, arena_of(host_, handle));
  if (size == 0 || offset > arena->size() || size > arena->size() - offset)
    return fail_errno(EINVAL, "map bytes {} to {} of an arena of {}", offset, offset + size,
                      arena->size());
  const MutableBytes bytes(arena->use() + offset, size);
  return std::make_unique<ArenaMapping>(std::move(arena), offset, bytes);
}

Task<Result<void>> SimMemory::wait(const std::atomic<uint32_t>& word, uint32_t expected,
                                   Instant deadline) {
  Wait wait(*this, word, expected, deadline);
  co_return co_await wait;
}

void SimMemory::wake_all(std::atomic<uint32_t>& word) {
  for (Wait* wait = waiting_.first(); wait != nullptr;) {
    Wait* next = waiting_.next(*wait);
    if (wait->waits_on(word)) wait->woken();
    wait = next;
  }
  // Who is told may watch again.
  List<Watch> told;
  for (Watch* watch = watches_.first(); watch != nullptr;) {
    Watch* next = watches_.next(*watch);
    if (watch->watches(word)) {
      watch->unlink();
      told.push_back(*watch);
    }
    watch = next;
  }
  while (!told.empty()) told.front().tell();
}

namespace {

Task<void> tell_soon(WakeTaker& taker, uint64_t tag) {
  taker.on_wake(tag);
  co_return;
}

}  // namespace

// No coroutine may wait on the word itself: it is elsewhere when the mapping has rested.
void SimMemory::tell_wake(const Mapping& mapping, uint64_t offset, uint32_t expected,
                          WakeTaker& taker, uint64_t tag, Scope& scope) {
  const bool changed = word_at(mapping, offset).load() != expected;
  if (changed) return scope.spawn(tell_soon(taker, tag));
  watches_.push_back(static_cast<const ArenaMapping&>(mapping).watch(offset, taker, tag));
}

}  // namespace tutti
