#include "world/real/loop.h"

#include <doctest/doctest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "world/real/fd.h"
#include "world/semaphore.h"

namespace tutti {
namespace {

Task<int> seven() { co_return 7; }

TEST_CASE("a loop runs a task to its value") {
  Loop loop;
  CHECK(loop.run(seven()) == 7);
  CHECK(loop.run(seven()) == 7);
}

Task<Duration> sleep_for(Loop& loop, Duration duration) {
  const Instant from = loop.clock().now();
  auto slept = co_await loop.clock().sleep(duration);
  CHECK(slept.has_value());
  co_return loop.clock().now() - from;
}

TEST_CASE("a sleep ends after its time, however short or past") {
  Loop loop;
  for (Duration duration :
       {Duration(-5ms), Duration(0), Duration(1ns), Duration(70us), Duration(3ms)})
    CHECK(loop.run(sleep_for(loop, duration)) >= duration);
}

Task<void> note_when(Loop& loop, Instant at, std::vector<Instant>& fired) {
  auto slept = co_await loop.clock().sleep_until(at);
  CHECK(slept.has_value());
  CHECK(loop.clock().now() >= at);
  fired.push_back(at);
}

Task<void> many_sleeps(Loop& loop, std::vector<Instant>& fired) {
  const Instant from = loop.clock().now();
  Scope scope;
  for (int i = 0; i < 1000; ++i)
    scope.spawn(note_when(loop, from + (i * 7919 % 1000) * 20us, fired));
  auto joined = co_await scope.join();
  CHECK(joined.has_value());
}

TEST_CASE("a thousand timers fire in the order of their times, none early") {
  Loop loop;
  std::vector<Instant> fired;
  loop.run(many_sleeps(loop, fired));
  REQUIRE(fired.size() == 1000);
  CHECK(std::is_sorted(fired.begin(), fired.end()));
}

Task<Result<void>> sleep_result(Loop& loop, Duration duration) {
  auto slept = co_await loop.clock().sleep(duration);
  co_return slept;
}

Task<Result<void>> early_deadline(Loop& loop) {
  auto result =
      co_await with_deadline(loop.clock(), loop.clock().now() + 2ms, sleep_result(loop, 1h));
  co_return result;
}

TEST_CASE("an alarm set for later is moved forward by an earlier deadline") {
  Loop loop;
  CHECK(loop.run(early_deadline(loop)).error().code() == Code::deadline);
}

// What a pool thread does: works, then hands the waiter's completion to the loop.
class Handover final : public Runnable {
 public:
  Handover(Loop& loop, Event& event) : loop_(loop), event_(event) {}
  void post() { loop_.post_from_any_thread(*this); }

 private:
  void run() override { event_.set(); }
  Loop& loop_;
  Event& event_;
};

Task<int> wait_for_threads(Loop& loop, int count) {
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::unique_ptr<Handover>> handovers;
  for (int i = 0; i < count; ++i) {
    events.push_back(std::make_unique<Event>());
    handovers.push_back(std::make_unique<Handover>(loop, *events.back()));
  }
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &handovers] {
      for (size_t i = static_cast<size_t>(t); i < handovers.size(); i += 4) handovers[i]->post();
    });
  }
  int woken = 0;
  for (auto& event : events) {
    auto waited = co_await event->wait();
    if (waited) ++woken;
  }
  co_return woken;
}

TEST_CASE("other threads wake a loop that sleeps, and nothing they post is lost") {
  Loop loop;
  for (int round = 0; round < 50; ++round) CHECK(loop.run(wait_for_threads(loop, 40)) == 40);
}

TEST_CASE("what was posted before the loop ran is run") {
  Loop loop;
  Event event;
  Handover handover(loop, event);
  std::jthread([&] { handover.post(); }).join();
  loop.run(sleep_for(loop, 1ms));
  CHECK(event.is_set());
}

// Removes the other when told: whichever is told first, the second must hear nothing.
class Rival final : public Watch {
 public:
  Rival(Loop& loop, int& told) : loop_(loop), told_(told) {
    CHECK(loop.add(event.number(), EPOLLIN, *this));
  }
  ~Rival() { loop_.remove(event.number(), *this); }
  void on_ready(uint32_t) override {
    ++told_;
    other->reset();
  }

  Handle event = own_fd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  std::unique_ptr<Rival>* other = nullptr;

 private:
  Loop& loop_;
  int& told_;
};

TEST_CASE("a watch that dies while its event is already reported is not told") {
  Loop loop;
  int told = 0;
  auto a = std::make_unique<Rival>(loop, told);
  auto b = std::make_unique<Rival>(loop, told);
  a->other = &b;
  b->other = &a;
  loop.run(sleep_for(loop, 1ms));
  CHECK(told == 1);
  CHECK((a == nullptr) != (b == nullptr));
}

TEST_CASE("a regular file cannot be watched and the error says so") {
  Loop loop;
  int told = 0;
  Rival rival(loop, told);
  FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  auto added = loop.add(fileno(file), EPOLLIN, rival);
  CHECK(added.error().code() == Code::unsupported);
  std::fclose(file);
}

Task<void> yield_often(int count) {
  for (int i = 0; i < count; ++i) co_await yield();
}

Task<void> busy_and_asleep(Loop& loop) {
  Scope scope;
  scope.spawn(yield_often(100'000));
  scope.spawn(sleep_result(loop, 1ms));
  auto joined = co_await scope.join();
  CHECK(joined.has_value());
}

Task<void> sleep_until_the_past(Loop& loop, const Event& event) {
  while (!event.is_set()) {
    auto slept = co_await loop.clock().sleep_until(Instant());
    CHECK(slept.has_value());
  }
}

TEST_CASE("who sleeps until the past again and again keeps nothing from outside waiting") {
  Loop loop;
  Event event;
  Handover handover(loop, event);
  std::jthread other([&] {
    std::this_thread::sleep_for(1ms);
    handover.post();
  });
  loop.run(sleep_until_the_past(loop, event));
  CHECK(event.is_set());
}

TEST_CASE("timers fire while strands are always ready") {
  Loop loop;
  loop.run(busy_and_asleep(loop));
}

}  // namespace
}  // namespace tutti
