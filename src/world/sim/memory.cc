#include "world/sim/memory.h"

#include <cerrno>
#include <cstdlib>

#include "world/sim/simulator.h"

namespace tutti {

// From calloc, so that what nobody touches costs nothing.
class Arena {
 public:
  explicit Arena(uint64_t size)
      : data_(static_cast<std::byte*>(std::calloc(1, size))), size_(size) {}
  ~Arena() { std::free(data_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  std::byte* data_;
  uint64_t size_;
};

namespace {

class ArenaMapping final : public Mapping {
 public:
  ArenaMapping(std::shared_ptr<Arena> arena, MutableBytes bytes)
      : Mapping(bytes), arena_(std::move(arena)) {}

 private:
  std::shared_ptr<Arena> arena_;
};

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
  auto arena = std::make_shared<Arena>(size);
  if (arena->data() == nullptr) return fail_errno(ENOMEM, "arena {} of {} bytes", name, size);
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
  const MutableBytes bytes(arena->data() + offset, size);
  return std::make_unique<ArenaMapping>(std::move(arena), bytes);
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
}

}  // namespace tutti
