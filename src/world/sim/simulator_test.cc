#include "world/sim/simulator.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

Task<void> tick(SimHost& host, Duration pause, int count, std::vector<std::string>& log) {
  for (int i = 0; i < count; ++i) {
    auto slept = co_await host.clock().sleep(pause);
    if (!slept) co_return;
    log.push_back(fmt::format("{}@{}", host.host_name(), host.simulator().now_ns()));
  }
}

TEST_CASE("virtual time jumps from event to event, in order, on all hosts") {
  Simulator sim({.hosts = 2, .costs = CostTable().without_processor_time()});
  std::vector<std::string> log;
  sim.host(0).scope().spawn(tick(sim.host(0), 1h, 2, log));
  sim.host(1).scope().spawn(tick(sim.host(1), 90min, 1, log));
  sim.run_for(3h);
  CHECK(log == std::vector<std::string>{"host0@3600000000000", "host1@5400000000000",
                                        "host0@7200000000000"});
  CHECK(sim.now_ns() == 3 * 3600'000'000'000);
}

TEST_CASE("a handler occupies its host's core and later events wait for it, in order") {
  CostTable costs = CostTable().without_processor_time();
  costs.timer_ns = 1000;
  Simulator sim({.hosts = 2, .costs = costs});
  std::vector<std::string> log;
  for (int i = 0; i < 3; ++i) sim.host(0).scope().spawn(tick(sim.host(0), 1us, 1, log));
  sim.host(1).scope().spawn(tick(sim.host(1), 1us, 1, log));
  sim.run_for(1s);
  CHECK(log == std::vector<std::string>{"host0@1000", "host1@1000", "host0@2000", "host0@3000"});
}

TEST_CASE("a slow host pays more for the same") {
  CostTable costs = CostTable().without_processor_time();
  costs.timer_ns = 1000;
  Simulator sim({.hosts = 1, .costs = costs});
  sim.set_slow(0, 300);
  std::vector<std::string> log;
  for (int i = 0; i < 2; ++i) sim.host(0).scope().spawn(tick(sim.host(0), 1us, 1, log));
  sim.run_for(1s);
  CHECK(log == std::vector<std::string>{"host0@1000", "host0@4000"});
}

TEST_CASE("a paused host does nothing until it is resumed, then everything it missed") {
  Simulator sim({.hosts = 1, .costs = CostTable().without_processor_time()});
  std::vector<std::string> log;
  sim.host(0).scope().spawn(tick(sim.host(0), 10ms, 2, log));
  sim.pause(0);
  sim.run_for(1s);
  CHECK(log.empty());
  sim.resume(0);
  sim.run_for(1s);
  CHECK(log == std::vector<std::string>{"host0@1000000000", "host0@1010000000"});
}

TEST_CASE("a timer that is cancelled while its host is paused does not fire") {
  Simulator sim({.hosts = 1});
  std::vector<std::string> log;
  sim.host(0).scope().spawn(tick(sim.host(0), 10ms, 1, log));
  sim.pause(0);
  sim.run_for(100ms);
  sim.host(0).scope().cancel();
  sim.run_for(100ms);
  sim.resume(0);
  sim.run_for(100ms);
  CHECK(log.empty());
}

Task<Result<void>> count_boots(SimHost& host, std::vector<std::string>& log) {
  log.push_back("boot");
  CO_TRY_DO(co_await host.clock().sleep(10s));
  log.push_back("done");
  co_return {};
}

TEST_CASE("a crash ends a host's programs where they stand, a reboot starts them anew") {
  Simulator sim({.hosts = 1});
  std::vector<std::string> log;
  sim.set_program([&log](SimHost& host) { return count_boots(host, log); });
  sim.start_all();
  sim.run_for(1s);
  sim.crash(0);
  sim.run_for(20s);
  CHECK(log == std::vector<std::string>{"boot"});
  CHECK_FALSE(sim.host(0).up());
  sim.reboot(0);
  sim.run_for(20s);
  CHECK(log == std::vector<std::string>{"boot", "boot", "done"});
  CHECK(sim.host(0).boots() == 2);
}

Task<Result<void>> measure_drift(SimHost& host, Duration& seen) {
  const Instant before = host.clock().now();
  CO_TRY_DO(co_await host.simulator().clock().sleep(1000s));
  seen = host.clock().now() - before;
  const Instant from = host.clock().now();
  CO_TRY_DO(co_await host.clock().sleep(1000s));
  host.simulator().check(host.clock().now() >= from + 1000s, "a timer never fires early");
  co_return {};
}

TEST_CASE("clocks drift, and timers follow their host's clock") {
  for (const int32_t ppb : {-100'000, 0, 100'000, 77'777}) {
    Simulator sim({.hosts = 1});
    sim.host(0).set_drift_ppb(ppb);
    Duration seen{};
    auto result = sim.run(measure_drift(sim.host(0), seen), 1h);
    REQUIRE(result);
    CHECK(std::abs(to_ns(seen) - 1000'000'000'000 - int64_t{1000} * ppb) <= 1);
  }
}

Task<Result<void>> break_promise(Simulator& sim) {
  CO_TRY_DO(co_await sim.host(3).clock().sleep(5ms));
  sim.check(1 + 1 == 3, "sum is {}", 1 + 1);
  CO_TRY_DO(co_await sim.clock().sleep(1h));
  co_return {};
}

TEST_CASE("a check that fails ends the run and says when and where") {
  Simulator sim({.hosts = 4});
  auto result = sim.run(break_promise(sim), 2h);
  REQUIRE_FALSE(result);
  CHECK(result.error().text() == "sum is 2");
  REQUIRE(sim.failure());
  CHECK(sim.failure()->at_ns == 5'000'000);
  CHECK(sim.failure()->host == 3);
}

TEST_CASE("a task that is not done in time fails") {
  Simulator sim({.hosts = 4});
  auto result = sim.run(break_promise(sim), 1ms);
  REQUIRE_FALSE(result);
  CHECK(result.error().code() == Code::deadline);
}

TEST_CASE("what one host draws does not move what another draws") {
  Simulator one({.seed = 5, .hosts = 3});
  Simulator two({.seed = 5, .hosts = 3});
  for (int i = 0; i < 100; ++i) one.host(1).random().next();
  CHECK(one.host(2).random().next() == two.host(2).random().next());
  CHECK(one.host(0).random().next() != one.host(2).random().next());
}

TEST_CASE("a million idle hosts cost a few hundred bytes each") {
  CHECK(sizeof(SimHost) <= 256);
  CHECK(sizeof(HostCore) == 64);
}

}  // namespace
}  // namespace tutti
