#include "world/real/memory.h"

#include <sys/mman.h>

#include <csignal>
#include <thread>

#include "world/real/fd.h"
#include "world/real/process_test_tools.h"

namespace tutti {

namespace {

struct Machine {
  explicit Machine(WordWatch watch)
      : loop(LoopOptions{.spin = Duration::zero()}), memory(loop, watch) {}
  Loop loop;
  RealMemory memory;
};

template <class Body>
void on_both(Body body) {
  for (const WordWatch watch : {WordWatch::best, WordWatch::threads}) {
    CAPTURE(watch == WordWatch::threads);
    Machine machine(watch);
    body(machine);
  }
}

std::atomic<uint32_t>& word_of(const Mapping& mapping) {
  return *reinterpret_cast<std::atomic<uint32_t>*>(mapping.bytes().data());
}

Task<Result<void>> wait_until(RealMemory& memory, std::atomic<uint32_t>& word, uint32_t wanted) {
  for (;;) {
    const uint32_t seen = word.load();
    if (seen == wanted) co_return {};
    CO_TRY_DO(co_await memory.wait(word, seen, kNever));
  }
}

Task<Result<void>> wait_a_while(Loop& loop, RealMemory& memory, std::atomic<uint32_t>& word) {
  auto waited = co_await memory.wait(word, word.load(), loop.clock().now() + 2ms);
  co_return waited;
}

Task<Result<void>> begin_and_cancel(Loop& loop, RealMemory& memory, std::atomic<uint32_t>& word,
                                    size_t waits) {
  Scope scope;
  for (size_t i = 0; i < waits; ++i) scope.spawn(wait_until(memory, word, 1'000'000));
  auto slept = co_await loop.clock().sleep(2ms);
  scope.cancel();
  auto joined = co_await scope.join();
  co_return slept;
}

Task<Result<void>> overfill(RealMemory& memory, std::atomic<uint32_t>& word, size_t waits) {
  Scope scope;
  for (size_t i = 0; i < waits; ++i) scope.spawn(wait_until(memory, word, 1'000'000));
  auto joined = co_await scope.join();
  co_return joined;
}

Task<Result<void>> change(Loop& loop, RealMemory& memory, std::atomic<uint32_t>& word,
                          uint32_t value) {
  CO_TRY_DO(co_await loop.clock().sleep(2ms));
  word = value;
  memory.wake_all(word);
  co_return {};
}

Task<Result<void>> wait_many(Loop& loop, RealMemory& memory, std::atomic<uint32_t>& word) {
  Scope scope;
  for (int i = 0; i < 10; ++i) scope.spawn(wait_until(memory, word, 5));
  scope.spawn(change(loop, memory, word, 5));
  auto joined = co_await scope.join();
  co_return joined;
}

}  // namespace

TEST_CASE("an arena is zeroed, sized, shared and cannot shrink") {
  Loop loop(LoopOptions{.spin = Duration::zero()});
  RealMemory memory(loop);
  auto arena = memory.create_arena("test", 100'000);
  REQUIRE(arena.has_value());
  CHECK(*memory.arena_size(*arena) == 100'000);
  auto first = memory.map(*arena, 0, 100'000, true);
  auto second = memory.map(*arena, 50'001, 10, false);
  REQUIRE(first.has_value());
  REQUIRE(second.has_value());
  CHECK((*second)->bytes()[0] == std::byte{0});
  (*first)->bytes()[50'001] = std::byte{7};
  CHECK((*second)->bytes()[0] == std::byte{7});
  CHECK(ftruncate(arena->number(), 10) != 0);
  CHECK((fcntl(arena->number(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("arenas that cannot be are refused") {
  Loop loop(LoopOptions{.spin = Duration::zero()});
  RealMemory memory(loop);
  CHECK(memory.create_arena("empty", 0).error().code() == Code::invalid);
  CHECK(memory.create_arena("vast", ~0ULL).error().code() == Code::exhausted);
  CHECK(memory.create_arena(std::string(1000, 'n'), 1).has_value());
  auto arena = memory.create_arena("small", 10);
  CHECK(memory.map(*arena, 0, 11, true).error().code() == Code::invalid);
  CHECK(memory.map(*arena, 11, 0, true).error().code() == Code::invalid);
}

TEST_CASE("a word that another process changes ends the wait") {
  on_both([](Machine& machine) {
    auto arena = machine.memory.create_arena("word", 4096);
    auto mapping = machine.memory.map(*arena, 0, 4096, true);
    std::atomic<uint32_t>& word = word_of(**mapping);
    const pid_t child = fork();
    if (child == 0) {
      for (uint32_t i = 1; i <= 50; ++i) {
        usleep(200);
        word = i;
        machine.memory.wake_all(word);
      }
      _exit(0);
    }
    CHECK(machine.loop.run(wait_until(machine.memory, word, 50)).has_value());
    int status = 0;
    waitpid(child, &status, 0);
  });
}

TEST_CASE("a word that another thread changes ends the wait") {
  on_both([](Machine& machine) {
    std::atomic<uint32_t> word = 0;
    std::thread other([&] {
      for (uint32_t i = 1; i <= 200; ++i) {
        if (i % 10 == 0) std::this_thread::sleep_for(100us);
        word = i;
        machine.memory.wake_all(word);
      }
    });
    CHECK(machine.loop.run(wait_until(machine.memory, word, 200)).has_value());
    other.join();
  });
}

TEST_CASE("one wake ends every wait on the word") {
  on_both([](Machine& machine) {
    std::atomic<uint32_t> word = 0;
    CHECK(machine.loop.run(wait_many(machine.loop, machine.memory, word)).has_value());
  });
}

TEST_CASE("a wait on a word ends at its deadline") {
  on_both([](Machine& machine) {
    std::atomic<uint32_t> word = 3;
    const auto waited = machine.loop.run(wait_a_while(machine.loop, machine.memory, word));
    REQUIRE_FALSE(waited.has_value());
    CHECK(waited.error().code() == Code::deadline);
  });
}

TEST_CASE("waits on words can be given up") {
  on_both([](Machine& machine) {
    std::atomic<uint32_t> word = 3;
    for (int round = 0; round < 5; ++round)
      CHECK(machine.loop.run(begin_and_cancel(machine.loop, machine.memory, word, 20)).has_value());
  });
}

TEST_CASE("too many waits on words are refused, not queued") {
  on_both([](Machine& machine) {
    std::atomic<uint32_t> word = 3;
    const size_t most =
        machine.memory.on_ring() ? RealMemory::kMostOnRing : RealMemory::kMostThreads;
    const auto result = machine.loop.run(overfill(machine.memory, word, most + 1));
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code() == Code::exhausted);
  });
}

TEST_CASE("a word that differs already needs no wait") {
  on_both([](Machine& machine) {
    const std::atomic<uint32_t> word = 4;
    CHECK(machine.loop.run(machine.memory.wait(word, 3, kNever)).has_value());
  });
}

}  // namespace tutti
