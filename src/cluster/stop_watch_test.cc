#include "cluster/stop_watch.h"

#include <doctest/doctest.h>

#include <csignal>

#include "world/real/real_world.h"

namespace tutti {
namespace {

using Seen = StopWatch::Seen;

Task<void> comes_to(World& world, pid_t pid, bool stopped) {
  while ((world.processes().state_of(pid) == 'T') != stopped)
    (void)co_await world.clock().sleep(1ms);
}

Task<void> stop_again_and_again(World& world) {
  Processes& processes = world.processes();
  auto process = processes.spawn({.arguments = {"sleep", "1000"}, .environment = {"PATH=/bin"}});
  REQUIRE(process);
  const pid_t pid = (*process)->pid();
  StopWatch watch;
  CHECK(watch.look(processes, pid) == Seen::going);
  const std::vector<Seen> looks = {Seen::woken, Seen::woken, Seen::going, Seen::woken, Seen::woken};
  for (const Seen seen : looks) {
    if (seen == Seen::woken) {
      REQUIRE((*process)->signal(SIGSTOP));
      co_await comes_to(world, pid, true);
    }
    CHECK(watch.look(processes, pid) == seen);
    co_await comes_to(world, pid, false);
  }
  REQUIRE((*process)->signal(SIGSTOP));
  co_await comes_to(world, pid, true);
  CHECK(watch.look(processes, pid) == Seen::hopeless);
  REQUIRE((*process)->signal(SIGKILL));
  auto exit = co_await (*process)->wait();
  CHECK(exit.has_value());
}

TEST_CASE("who was stopped goes on, and is hopeless when it is stopped three times in a row") {
  RealWorld world;
  world.run(stop_again_and_again(world));
}

}  // namespace
}  // namespace tutti
