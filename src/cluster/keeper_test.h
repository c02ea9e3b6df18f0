// For tests: a keeper beside a test, in either world, and programs that behave the same in both.
#pragma once

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "cluster/keeper.h"
#include "cluster/keeper_client.h"
#include "world/real/real_world.h"
#include "world/sim/process.h"
#include "world/sim/simulator.h"

namespace tutti {

// A keeper in the test's own process, and its first controller.
struct Kept {
  World& world;
  bool simulated;
  std::string path;  // where it lingers
  std::unique_ptr<KeeperClient> client;
};

using KeeperTest = Task<void> (*)(Kept&);

inline std::string why(const auto& result) { return result ? "" : result.error().text(); }

#define REQUIRE_OK(result) REQUIRE_MESSAGE((result).has_value(), why(result))

// ---- Programs. In the real world they are shell scripts. ----

namespace testing {

inline Task<int> sim_sleep(SimProcess& process) {
  (void)co_await process.clock().sleep(1000h);
  co_return 0;
}
inline Task<int> sim_exit(SimProcess& process) {
  co_return std::stoi(std::string(process.variable("CODE")));
}
// Does not listen to SIGTERM, and starts what would outlive it.
inline Task<int> sim_stubborn(SimProcess& process) {
  process.catch_signal(SIGTERM);
  SpawnOptions options{.arguments = {"sleep"}};
  options.new_session = true;
  auto daemon = process.processes().spawn(options);
  (void)co_await process.clock().sleep(1000h);
  co_return daemon ? 0 : 1;
}
// Waits for its rank, and returns the CODE that came with it; 9 when none came. With STAY it sleeps
// then, as one that is no spare does at once.
inline Task<int> sim_spare(SimProcess& process) {
  const std::string number(process.variable(kSpareVariable));
  if (number.empty()) co_return co_await sim_sleep(process);
  auto stream = process.take_stream(std::stoi(number));
  if (!stream) co_return 8;
  std::string all;
  std::string piece(512, ' ');
  while (true) {
    const MutableBytes into = as_mutable_bytes(piece);
    auto count = co_await (*stream)->read(into);
    if (!count || *count == 0) break;
    all.append(piece, 0, *count);
  }
  const std::string_view taken = "!";
  const Bytes byte = as_bytes(taken);
  if (!all.empty()) (void)co_await (*stream)->write(byte);
  const size_t found = all.find("CODE=");
  const int code = found == std::string::npos ? 9 : std::stoi(all.substr(found + 5));
  if (!process.variable("STAY").empty()) (void)co_await process.clock().sleep(1000h);
  co_return code;
}

inline std::string script_of(const std::string& program) {
  if (program == "sleep") return "while :; do sleep 0.02; done";
  if (program == "exit") return "exit $CODE";
  if (program == "stubborn")
    return "trap '' TERM; setsid sleep 1000 & while :; do sleep 0.02; done";
  REQUIRE(program == "spare");
  return "[ -n \"$TUTTI_SPARE_FD\" ] || exec sleep 1000; "
         "code=$(tr '\\0' '\\n' <&$TUTTI_SPARE_FD | sed -n 's/^CODE=//p'); "
         "trap '' PIPE; echo >&$TUTTI_SPARE_FD; trap - PIPE; "
         "[ -n \"$STAY\" ] && sleep 1000; exit ${code:-9}";
}

}  // namespace testing

inline void add_programs(Simulator& sim) {
  sim.set_process("sleep", testing::sim_sleep);
  sim.set_process("exit", testing::sim_exit);
  sim.set_process("stubborn", testing::sim_stubborn);
  sim.set_process("spare", testing::sim_spare);
}

// That many ranks, with numbers from 0.
inline keeper::Spawn gang(const Kept& kept, const std::string& program, uint32_t ranks) {
  keeper::Spawn spawn;
  if (kept.simulated) {
    spawn.add_arguments(program);
  } else {
    for (const char* word : {"/bin/sh", "-c"}) spawn.add_arguments(word);
    spawn.add_arguments(testing::script_of(program));
  }
  spawn.add_environment("PATH=/usr/bin:/bin");
  spawn.set_output(keeper::Spawn::NOTHING);
  for (uint32_t rank = 0; rank < ranks; ++rank) spawn.add_ranks()->set_rank(rank);
  return spawn;
}

// ---- Running. ----

namespace testing {

inline Task<Result<void>> keep_and_check(World& world, KeeperOptions options,
                                         std::unique_ptr<Stream> stream) {
  auto kept = co_await keep(world, std::move(options), std::move(stream));
  CHECK_MESSAGE(kept.has_value(), why(kept));
  co_return {};
}

inline Task<Result<void>> test_and_shut_down(Kept& kept, KeeperTest test) {
  co_await test(kept);
  if (kept.client != nullptr) (void)co_await kept.client->shutdown();
  co_return {};
}

inline Task<Result<void>> beside_keeper(World& world, KeeperTest test, bool simulated,
                                        uint32_t speak) {
  auto pair = world.network().pair();
  REQUIRE_OK(pair);
  auto theirs = world.network().adopt(std::move(pair->theirs));
  REQUIRE_OK(theirs);
  const std::string folder = simulated ? "/run" : std::filesystem::temp_directory_path().string();
  Kept kept{world, simulated, fmt::format("{}/tutti-keeper-{:016x}", folder, world.random().next()),
            nullptr};
  KeeperOptions options{.group = "", .linger = kept.path, .speak = speak};
  Scope scope;
  scope.spawn(keep_and_check(world, std::move(options), std::move(*theirs)));
  kept.client =
      std::make_unique<KeeperClient>(std::make_unique<KeeperStream>(std::move(pair->ours)));
  auto greeted = co_await kept.client->hello();
  REQUIRE_OK(greeted);
  scope.spawn(test_and_shut_down(kept, test));
  co_return co_await scope.join();
}

}  // namespace testing

// The test runs beside a lingering keeper that has been greeted, and is shut down afterwards by
// the client that the test leaves. Both must return, with no process left.
inline void in_both_worlds(KeeperTest test, uint32_t speak = kHighestKeeperVersion) {
  {
    INFO("in simulation");
    Simulator sim{{.seed = 11, .hosts = 1}};
    add_programs(sim);
    auto ran = sim.run(testing::beside_keeper(sim.host(0), test, true, speak), 1h);
    REQUIRE_OK(ran);
    CHECK(sim.host(0).processes().descendants()->empty());
    CHECK(sim.host(0).handles().size() == 0);
  }
  INFO("on Linux");
  RealWorld world({.spin = 0s});
  auto ran = world.run(testing::beside_keeper(world, test, false, speak));
  REQUIRE_OK(ran);
  CHECK(world.processes().descendants()->empty());
}

}  // namespace tutti
