#include "world/scope.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "world/channel.h"
#include "world/manual_clock.h"
#include "world/semaphore.h"

namespace tutti {
namespace {

struct Bench {
  Executor executor;
  ManualClock clock;
  Scope root{Scope::Root{}};
  std::vector<std::string> log;

  ~Bench() { CHECK(root.size() == 0); }
};

Task<int> answer() { co_return 42; }

Task<void> add_up(int& sum, int count) {
  for (int i = 0; i < count; ++i) {
    int value = co_await answer();
    sum += value;
  }
}

TEST_CASE("a loop over tasks that never wait needs no stack") {
  Bench bench;
  int sum = 0;
  bench.root.spawn(add_up(sum, 1'000'000));
  bench.executor.run_ready();
  CHECK(sum == 42'000'000);
}

Task<Result<void>> note_after(Bench& bench, Duration wait, std::string name) {
  auto slept = co_await bench.clock.sleep(wait);
  bench.log.push_back(name + (slept ? " woke" : " cancelled"));
  co_return slept;
}

Task<void> two_children(Bench& bench) {
  Scope scope;
  scope.spawn(note_after(bench, 20ms, "slow"));
  scope.spawn(note_after(bench, 10ms, "quick"));
  auto joined = co_await scope.join();
  bench.log.push_back(joined ? "joined" : "failed");
}

TEST_CASE("children run side by side and are joined") {
  Bench bench;
  bench.root.spawn(two_children(bench));
  bench.clock.advance(15ms);
  CHECK(bench.log == std::vector<std::string>{"quick woke"});
  bench.clock.advance(15ms);
  CHECK(bench.log == std::vector<std::string>{"quick woke", "slow woke", "joined"});
}

Task<Result<void>> fail_after(Bench& bench, Duration wait) {
  CO_TRY_DO(co_await bench.clock.sleep(wait));
  co_return fail(Code::io, "the disk said no");
}

Task<void> one_fails(Bench& bench) {
  Scope scope;
  scope.spawn(note_after(bench, 1h, "sibling"));
  scope.spawn(fail_after(bench, 5ms));
  auto joined = co_await scope.join();
  bench.log.push_back(joined.error().text());
}

TEST_CASE("a child that fails cancels its siblings and its error is what join gives") {
  Bench bench;
  bench.root.spawn(one_fails(bench));
  bench.clock.advance(6ms);
  CHECK(bench.log == std::vector<std::string>{"sibling cancelled", "the disk said no"});
}

TEST_CASE("cancelling reaches nested scopes, and join still waits for the children") {
  Bench bench;
  bench.root.spawn(two_children(bench));
  bench.clock.advance(1ms);
  bench.root.cancel();
  bench.clock.advance(0ms);
  CHECK(bench.log == std::vector<std::string>{"slow cancelled", "quick cancelled", "failed"});
}

Task<void> clean_up(Bench& bench) {
  auto slept = co_await bench.clock.sleep(1h);
  CHECK(slept.error().code() == Code::cancelled);
  auto again = co_await bench.clock.sleep(1h);
  CHECK(again.error().code() == Code::cancelled);
  {
    Shield shield;
    auto said_goodbye = co_await bench.clock.sleep(1ms);
    CHECK(said_goodbye.has_value());
  }
  auto after = co_await bench.clock.sleep(1ms);
  CHECK(!after);
  bench.log.push_back("clean");
}

TEST_CASE("a cancelled strand stays cancelled, but a shield lets clean-up wait") {
  Bench bench;
  bench.root.spawn(clean_up(bench));
  bench.clock.advance(1ms);
  bench.root.cancel();
  bench.clock.advance(1ms);
  CHECK(bench.log == std::vector<std::string>{"clean"});
}

Task<Result<int>> value_after(Bench& bench, Duration wait) {
  CO_TRY_DO(co_await bench.clock.sleep(wait));
  co_return 7;
}

Task<void> hurried(Bench& bench) {
  const Instant soon = bench.clock.now() + 5ms;
  auto late = co_await with_deadline(bench.clock, soon, value_after(bench, 1h));
  CHECK(late.error().code() == Code::deadline);
  auto in_time = co_await with_deadline(bench.clock, kNever, value_after(bench, 1h));
  CHECK(in_time.value() == 7);
  bench.log.push_back("done");
}

TEST_CASE("a deadline ends the work and says so; work in time gives its value") {
  Bench bench;
  bench.root.spawn(hurried(bench));
  bench.clock.advance(2h);
  CHECK(bench.log == std::vector<std::string>{"done"});
}

struct Bomb {
  std::vector<std::string>& log;
  std::string name;
  ~Bomb() { log.push_back(name); }
};

Task<void> nested_forever(Bench& bench, int depth) {
  Bomb bomb{bench.log, "frame " + std::to_string(depth)};
  Scope scope;
  if (depth > 0) scope.spawn(nested_forever(bench, depth - 1));
  auto slept = co_await bench.clock.sleep(1h);
  bench.log.push_back("must not run");
  auto joined = co_await scope.join();
}

TEST_CASE("killing destroys frames, innermost first, without running them") {
  Bench bench;
  bench.root.spawn(nested_forever(bench, 2));
  bench.clock.advance(1ms);
  CHECK(live_frames == 3);
  bench.root.kill();
  CHECK(live_frames == 0);
  CHECK(bench.log == std::vector<std::string>{"frame 0", "frame 1", "frame 2"});
}

Task<void> produce(Channel<int>& channel, int count) {
  for (int i = 0; i < count; ++i) {
    auto sent = co_await channel.send(i);
    CHECK(sent.has_value());
  }
  channel.close();
}

Task<void> consume(Channel<int>& channel, std::vector<int>& got) {
  for (;;) {
    auto value = co_await channel.recv();
    if (!value) co_return;
    got.push_back(*value);
  }
}

TEST_CASE("a channel keeps order, blocks when full and drains after close") {
  Bench bench;
  Channel<int> channel(2);
  std::vector<int> got;
  Scope scope{Scope::Root{}};
  scope.spawn(produce(channel, 5));
  bench.executor.run_ready();
  CHECK(channel.size() == 2);
  scope.spawn(consume(channel, got));
  bench.executor.run_ready();
  CHECK(got == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(scope.size() == 0);
  auto refused = channel.try_recv();
  CHECK(!refused);
  int value = 1;
  CHECK(!channel.try_send(value));
}

TEST_CASE("a receiver that is cancelled takes nothing") {
  Bench bench;
  Channel<int> channel(1);
  std::vector<int> got;
  Scope scope{Scope::Root{}};
  scope.spawn(consume(channel, got));
  bench.executor.run_ready();
  scope.cancel();
  bench.executor.run_ready();
  CHECK(scope.size() == 0);
  int value = 1;
  CHECK(channel.try_send(value));
  CHECK(got.empty());
}

Task<void> take_permits(Bench& bench, Semaphore& semaphore, uint64_t count) {
  auto granted = co_await semaphore.acquire(count);
  bench.log.push_back((granted ? "got " : "gave up ") + std::to_string(count));
}

TEST_CASE("a semaphore serves in order, and a large request that gives up lets others pass") {
  Bench bench;
  Semaphore semaphore(2);
  Scope large{Scope::Root{}};
  large.spawn(take_permits(bench, semaphore, 3));
  bench.executor.run_ready();
  bench.root.spawn(take_permits(bench, semaphore, 1));
  bench.executor.run_ready();
  CHECK(bench.log.empty());
  large.cancel();
  bench.executor.run_ready();
  CHECK(bench.log == std::vector<std::string>{"gave up 3", "got 1"});
  CHECK(semaphore.permits() == 1);
}

}  // namespace
}  // namespace tutti
