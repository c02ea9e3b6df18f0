// The recorder in a simulated world: the same code, virtual time, disks that fill up and hosts that
// crash.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "record/reader.h"
#include "record/recorder.h"
#include "world/sim/disk.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

const RecordKind kTick("test.tick", "number", "proof");

constexpr int kTicks = 20;
const std::string kPath = "/agent.rec";
const Recorder::Options kSmall{.process = "agent", .lanes = 1, .records_per_lane = 64};

Task<Result<void>> record_ticks(SimHost& host) {
  CO_TRY(auto recorder, co_await Recorder::create(host, kPath, kSmall));
  for (int i = 0; i < kTicks; ++i) {
    const Span span = recorder->span(kTick, i, i * 7);
    CO_TRY_DO(co_await host.clock().sleep(10ms));
  }
  co_return {};
}

Task<Result<void>> look(SimHost& host, Result<Recording>& seen) {
  seen = co_await read_recording(host.disk(), kPath);
  co_return {};
}

Task<Result<void>> copy_file(SimHost& host, std::string& bytes) {
  CO_TRY(bytes, co_await read_file(host.disk(), kPath, 1_MiB));
  co_return {};
}

TEST_CASE("a simulated host records in virtual time") {
  Simulator sim({.seed = 1, .hosts = 1});
  SimHost& host = sim.host(0);
  REQUIRE(sim.run(record_ticks(host), 1min));
  Result<Recording> seen;
  REQUIRE(sim.run(look(host, seen), 1min));
  REQUIRE(seen);
  CHECK(seen->host == host.host_name());
  CHECK(seen->closed_ns > seen->created_ns);
  REQUIRE(seen->records.size() == 2 * kTicks);
  const Record& last = seen->records.back();
  CHECK(last.a == kTicks - 1);
  CHECK(last.time_ns - last.began_ns >= 10'000'000);
  CHECK(last.time_ns - last.began_ns < 20'000'000);
}

TEST_CASE("the same seed writes the same recording, byte by byte") {
  std::vector<std::string> copies(2);
  for (std::string& copy : copies) {
    Simulator sim({.seed = 42, .hosts = 1});
    REQUIRE(sim.run(record_ticks(sim.host(0)), 1min));
    REQUIRE(sim.run(copy_file(sim.host(0), copy), 1min));
  }
  CHECK(copies[0].size() > record_layout::kHeaderBytes);
  CHECK(copies[0] == copies[1]);
}

Task<Result<void>> list_root(SimHost& host, std::vector<std::string>& names) {
  const std::string root = "/";
  CO_TRY(names, co_await host.disk().list(root));
  co_return {};
}

TEST_CASE("a full disk is told when the recording is made, and nothing is left behind") {
  Simulator sim({.seed = 1, .hosts = 1});
  SimHost& host = sim.host(0);
  static_cast<SimDisk&>(host.disk()).files().space().capacity = 50'000;
  const auto made = sim.run(record_ticks(host), 1min);
  REQUIRE_FALSE(made);
  CHECK(made.error().code() == Code::exhausted);
  CHECK(made.error().text().find("making the recording /agent.rec: it takes 104.0 KiB: free some "
                                 "space or choose another place") == 0);
  std::vector<std::string> names = {"not asked yet"};
  REQUIRE(sim.run(list_root(host, names), 1min));
  CHECK(names.empty());
}

Task<Result<void>> do_nothing(SimHost&) { co_return {}; }

// Nothing of a ring is synced: after a crash of the host, pages of it are as old as luck has it.
TEST_CASE("what a crashed host's disk kept of a recording is whole or left out") {
  int read = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Simulator sim({.seed = seed, .hosts = 1});
    sim.set_program(record_ticks);
    sim.start(0);
    sim.run_for(150ms);
    sim.crash(0);
    sim.run_for(1s);
    sim.set_program(do_nothing);
    sim.reboot(0);
    sim.run_for(1s);
    Result<Recording> seen;
    REQUIRE(sim.run(look(sim.host(0), seen), 1min));
    if (!seen) continue;
    ++read;
    for (const Record& record : seen->records) CHECK(record.b == record.a * 7);
  }
  CHECK(read > 0);
}

}  // namespace
}  // namespace tutti
