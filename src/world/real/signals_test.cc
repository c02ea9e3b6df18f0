#include "world/real/signals.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>

#include "world/real/network_fixture.h"

namespace tutti {
namespace {

constexpr std::array kNumbers = {SIGUSR1, SIGUSR2};

Task<Result<int>> next_within(Loop& loop, Signals& signals, Duration time) {
  auto next = signals.next();
  auto number = co_await with_deadline(loop.clock(), loop.clock().now() + time, std::move(next));
  co_return number;
}

Task<void> signal_later(Loop& loop, int number) {
  auto slept = co_await loop.clock().sleep(2ms);
  CHECK(slept);
  CHECK(kill(getpid(), number) == 0);
}

Task<void> wait_for_both(Loop& loop, Signals& signals) {
  CHECK(kill(getpid(), SIGUSR2) == 0);  // before anybody waits
  auto number = co_await next_within(loop, signals, 10s);
  CHECK(number.value() == SIGUSR2);
  Scope scope;
  scope.spawn(signal_later(loop, SIGUSR1));
  number = co_await next_within(loop, signals, 10s);
  CHECK(number.value() == SIGUSR1);
  auto joined = co_await scope.join();
  CHECK(joined);
}

TEST_CASE("signals are waited for, and cancelling the wait loses none") {
  LeakCheck leaks;
  Loop loop;
  auto signals = Signals::create(loop, kNumbers);
  REQUIRE(signals);
  auto nothing = loop.run(next_within(loop, **signals, 2ms));
  CHECK(nothing.error().code() == Code::deadline);
  loop.run(wait_for_both(loop, **signals));
}

TEST_CASE("a signal that is ignored already stays ignored") {
  Loop loop;
  std::signal(SIGUSR1, SIG_IGN);
  auto signals = Signals::create(loop, kNumbers);
  REQUIRE(signals);
  CHECK(kill(getpid(), SIGUSR1) == 0);
  CHECK(kill(getpid(), SIGUSR2) == 0);
  auto number = loop.run(next_within(loop, **signals, 10s));
  CHECK(number.value() == SIGUSR2);
  std::signal(SIGUSR1, SIG_DFL);
}

TEST_CASE("the thread's signal mask is as before when a Signals is gone") {
  sigset_t before, during, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    Loop loop;
    auto signals = Signals::create(loop, kNumbers);
    pthread_sigmask(SIG_SETMASK, nullptr, &during);
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  CHECK(sigismember(&before, SIGUSR1) == 0);
  CHECK(sigismember(&during, SIGUSR1) == 1);
  CHECK(sigismember(&after, SIGUSR1) == 0);
}

}  // namespace
}  // namespace tutti
