#include "cluster/memory_blame.h"

#include <doctest/doctest.h>

#include "cluster/keeper_test.h"
#include "world/sim/process_table.h"

namespace tutti {
namespace {

TEST_CASE("each process the kernel killed for memory explains one failure") {
  MemoryBlame blame;
  blame.look(5, Instant(0s));  // of before, and of others
  CHECK_FALSE(blame.explains(5));
  CHECK(blame.explains(7));
  CHECK(blame.explains(7));
  CHECK_FALSE(blame.explains(7));
}

TEST_CASE("a failure long after has another reason") {
  MemoryBlame blame;
  blame.look(0, Instant(0s));
  blame.look(1, Instant(10s));
  CHECK(MemoryBlame(blame).explains(1));  // a child was killed just now
  blame.look(1, Instant(15s));
  CHECK(MemoryBlame(blame).explains(1));
  blame.look(1, Instant(20s));
  CHECK_FALSE(blame.explains(1));
  CHECK(blame.explains(2));
}

TEST_CASE("without a count nothing is blamed on memory") {
  MemoryBlame blame;
  CHECK_FALSE(blame.explains(3));
}

Task<keeper::Exited::Rank> next_exit(Kept& kept) {
  auto exit = co_await kept.client->next_exit();
  REQUIRE_OK(exit);
  co_return *exit;
}

// Ranks 0 and 2 are killed for memory, rank 1 by us.
Task<void> three_deaths(Kept& kept) {
  ProcessTable& table = static_cast<SimHost&>(kept.world).process_table();
  keeper::Spawn spawn = gang(kept, "sleep", 3);
  auto ranks = co_await kept.client->spawn(std::move(spawn));
  REQUIRE_OK(ranks);
  REQUIRE(table.kill_for_memory((*ranks)[0].pid).has_value());
  const keeper::Exited::Rank hungry = co_await next_exit(kept);
  CHECK(hungry.rank() == 0);
  CHECK(hungry.signal() == SIGKILL);
  CHECK(hungry.out_of_memory());
  keeper::Signal signal;
  signal.add_ranks(1);
  signal.set_number(SIGKILL);
  REQUIRE(table.kill_for_memory(ranks->back().pid).has_value());
  const keeper::Exited::Rank second = co_await next_exit(kept);
  CHECK(second.out_of_memory());
  auto reached = co_await kept.client->signal(std::move(signal));
  REQUIRE_OK(reached);
  const keeper::Exited::Rank ours = co_await next_exit(kept);
  CHECK(ours.rank() == 1);
  CHECK_FALSE(ours.out_of_memory());
}

TEST_CASE("a keeper tells whom the kernel killed for memory") {
  Simulator sim{{.seed = 5, .hosts = 1}};
  add_programs(sim);
  auto ran =
      sim.run(testing::beside_keeper(sim.host(0), three_deaths, true, kHighestKeeperVersion), 1h);
  REQUIRE_OK(ran);
}

}  // namespace
}  // namespace tutti
