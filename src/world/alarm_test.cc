#include "world/alarm.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "world/manual_clock.h"
#include "world/scope.h"

namespace tutti {
namespace {

struct Bench {
  Executor executor;
  ManualClock clock;
  Alarm alarm{clock};
  std::vector<std::string> log;  // "12 ms", or "12 ms cancelled"
  Scope root{Scope::Root{}};

  ~Bench() { CHECK(root.size() == 0); }
  void wait(std::vector<Instant> times) { root.spawn(wait_for(*this, std::move(times))); }
  static Task<void> wait_for(Bench& bench, std::vector<Instant> times) {
    for (const Instant at : times) {
      auto woken = co_await bench.alarm.until(at);
      const auto now_ms = to_ns(bench.clock.now()) / 1'000'000;
      const bool cancelled = !woken && woken.error().code() == Code::cancelled;
      bench.log.push_back(std::to_string(now_ms) + (cancelled ? " ms cancelled" : " ms"));
      if (!woken) co_return;
    }
  }
};

using Log = std::vector<std::string>;
constexpr Instant at(Duration time) { return Instant() + time; }

TEST_CASE("an alarm goes off at its time, and not before") {
  Bench bench;
  bench.wait({at(10ms), at(25ms)});
  bench.clock.advance(9ms);
  CHECK(bench.log.empty());
  bench.clock.advance(1ms);
  CHECK(bench.log == Log{"10 ms"});
  bench.clock.advance(1s);
  CHECK(bench.log == Log{"10 ms", "25 ms"});
}

TEST_CASE("a time that has passed is not waited for") {
  Bench bench;
  bench.clock.advance(50ms);
  bench.wait({at(10ms), Instant()});
  bench.clock.advance(0ms);
  CHECK(bench.log.size() == 2);  // a manual clock tells such timers their own time
}

TEST_CASE("a ring ends the wait early, and its time wakes nobody any more") {
  Bench bench;
  bench.wait({at(10ms), at(1h)});
  bench.clock.advance(4ms);
  bench.alarm.ring();
  bench.clock.advance(0ms);
  CHECK(bench.log == Log{"4 ms"});
  bench.clock.advance(30min);
  CHECK(bench.log == Log{"4 ms"});
  bench.clock.advance(30min);
  CHECK(bench.log.size() == 2);
}

TEST_CASE("a ring that nobody waited for ends the next wait, once") {
  Bench bench;
  bench.alarm.ring();
  bench.alarm.ring();
  bench.wait({kNever, at(10ms)});
  bench.clock.advance(0ms);
  CHECK(bench.log == Log{"0 ms"});
  bench.clock.advance(10ms);
  CHECK(bench.log == Log{"0 ms", "10 ms"});
}

TEST_CASE("rings before the waiter goes on are one ring") {
  Bench bench;
  bench.wait({kNever, at(10ms)});
  bench.clock.advance(1ms);
  bench.alarm.ring();
  bench.alarm.ring();
  bench.clock.advance(1ms);
  CHECK(bench.log == Log{"1 ms"});
  bench.clock.advance(1s);
  CHECK(bench.log == Log{"1 ms", "10 ms"});
}

TEST_CASE("an alarm that is never due waits for a ring") {
  Bench bench;
  bench.wait({kNever});
  bench.clock.advance(24h * 365);
  CHECK(bench.log.empty());
  bench.alarm.ring();
  bench.clock.advance(0ms);
  CHECK(bench.log.size() == 1);
}

TEST_CASE("cancelling the strand ends its wait, now and later") {
  for (const Instant due : {kNever, at(10ms)}) {
    Bench bench;
    bench.wait({due});
    bench.clock.advance(3ms);
    bench.root.cancel();
    bench.clock.advance(1s);
    CHECK(bench.log == Log{"3 ms cancelled"});
    bench.alarm.ring();  // nobody is there any more
    bench.clock.advance(1s);
    CHECK(bench.log.size() == 1);
  }
}

TEST_CASE("a strand that is cancelled already does not wait") {
  Bench bench;
  bench.wait({kNever});
  bench.root.cancel();
  bench.clock.advance(0ms);
  CHECK(bench.log == Log{"0 ms cancelled"});
}

TEST_CASE("an alarm whose waiter was destroyed rings for the next one") {
  Bench bench;
  bench.wait({at(10ms)});
  bench.clock.advance(1ms);
  bench.root.kill();
  bench.wait({at(20ms)});
  bench.clock.advance(1ms);
  bench.alarm.ring();
  bench.clock.advance(1s);
  CHECK(bench.log == Log{"2 ms"});
}

}  // namespace
}  // namespace tutti
