// The gang and its keeper, as they are, in a simulated host.
#include "cluster/gang.h"

#include <doctest/doctest.h>

#include <csignal>

#include "cluster/keeper.h"
#include "world/sim/process.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

Task<int> keeper_program(SimProcess& process) {
  auto controller = process.take_stream(kKeeperControllerNumber);
  if (!controller) co_return 2;
  KeeperOptions options;
  auto kept = co_await keep(process, std::move(options), std::move(*controller));
  co_return kept ? 0 : 1;
}

// Prints its rank, works for a second, and returns what FAIL<rank> says.
Task<int> worker_program(SimProcess& process) {
  auto out = process.take_stream(1);
  if (!out) co_return 2;
  const std::string text = fmt::format("rank {}\n", process.variable("RANK"));
  const Bytes bytes = as_bytes(text);
  auto written = co_await (*out)->write(bytes);
  auto slept = co_await process.clock().sleep(1s);
  if (!written || !slept) co_return 3;
  const std::string key = fmt::format("FAIL{}", process.variable("RANK"));
  const std::string code = process.variable(key);
  if (!code.empty()) co_return code.front() - '0';
  if (!process.variable("FOREVER").empty()) (void)co_await process.clock().sleep(1000h);
  co_return 0;
}

// Starts something that would outlive it, and does not listen to SIGTERM.
Task<int> stubborn_program(SimProcess& process) {
  process.catch_signal(SIGTERM);
  auto daemon = process.processes().spawn({.arguments = {"worker"}, .environment = {"FOREVER=1"}});
  (void)co_await process.clock().sleep(1000h);
  co_return daemon ? 0 : 1;
}

// Takes a second to save when asked to end, and is started by one that ends at once.
Task<int> saver_program(SimProcess& process) {
  process.catch_signal(SIGTERM);
  auto asked = co_await process.next_signal();
  auto saved = co_await process.clock().sleep(1s);
  auto out = process.take_stream(1);
  const std::string text = "saved\n";
  const Bytes bytes = as_bytes(text);
  auto written = co_await (*out)->write(bytes);
  co_return asked && saved && written ? 0 : 1;
}
Task<int> wrapper_program(SimProcess& process) {
  auto out = process.take_handle(1);
  SpawnOptions options{.arguments = {"saver"}};
  options.inherit.push_back({&*out, 1});
  auto saver = process.processes().spawn(options);
  out->close();
  (void)co_await process.clock().sleep(1000h);
  co_return saver ? 0 : 1;
}

struct Notes final : GangListener {
  std::map<uint32_t, std::string> printed;
  std::vector<uint32_t> exits;
  bool refuse = false;

  void on_started(uint32_t, pid_t, bool) override {}
  Task<Result<void>> on_output(uint32_t rank, RankStream, Bytes bytes) override {
    printed[rank] += as_text(bytes);
    if (refuse) co_return fail(Code::unavailable, "nobody reads");
    co_return {};
  }
  void on_exit(uint32_t rank, const RankReport&) override { exits.push_back(rank); }
  void on_ending(const GangReport&) override {}
};

struct Stage {
  Simulator sim{{.seed = 7, .hosts = 1}};
  SimHost& host = sim.host(0);
  Notes notes;
  Channel<int> signals{4};
  GangOptions options;
  GangReport report;

  explicit Stage(std::string program = "worker", std::vector<std::string> environment = {}) {
    sim.set_process("keeper", keeper_program);
    sim.set_process("worker", worker_program);
    sim.set_process("stubborn", stubborn_program);
    sim.set_process("saver", saver_program);
    sim.set_process("wrapper", wrapper_program);
    options.size = 3;
    options.command = {std::move(program)};
    options.environment = std::move(environment);
    options.keeper.command = {"keeper"};
  }

  static Task<Result<void>> run_one(Stage& stage) {
    GangOptions options = stage.options;
    stage.report = co_await run_gang(stage.host, std::move(options), stage.notes, stage.signals);
    co_return {};
  }
  static Task<void> kill_keeper(Stage& stage, Duration after) {
    (void)co_await stage.host.clock().sleep(after);
    auto below = stage.host.processes().descendants();  // parents first: the keeper is our child
    if (!below->empty()) CHECK(stage.host.processes().signal(below->front(), SIGKILL).has_value());
  }
  static Task<void> interrupt(Stage& stage, Duration after) {
    (void)co_await stage.host.clock().sleep(after);
    int number = SIGINT;
    stage.signals.try_send(number);
  }

  void run() {
    auto ran = sim.run(run_one(*this), 1h);
    REQUIRE_MESSAGE(ran.has_value(), (ran ? "" : ran.error().text()));
    CHECK(host.processes().descendants()->empty());
    CHECK(host.handles().size() == 0);
  }
};

TEST_CASE("in simulation a gang runs through its keeper, and finishes") {
  Stage stage;
  stage.run();
  CHECK(stage.report.exit_code() == 0);
  CHECK(stage.notes.printed ==
        std::map<uint32_t, std::string>{{0, "rank 0\n"}, {1, "rank 1\n"}, {2, "rank 2\n"}});
  CHECK(stage.notes.exits.size() == 3);
}

TEST_CASE("in simulation a failure ends the others") {
  Stage stage("worker", {"FAIL1=6", "FOREVER=1"});
  stage.run();
  CHECK(stage.report.end == GangEnd::rank_failed);
  CHECK(stage.report.culprit == 1);
  CHECK(stage.report.exit_code() == 6);
  CHECK(stage.report.ranks[0].exit->signal == SIGTERM);
  CHECK(stage.report.running == std::vector<uint32_t>{0, 2});
}

TEST_CASE("in simulation the stubborn and their daemons end after timeout and grace") {
  Stage stage("stubborn");
  stage.options.timeout = 2s;
  stage.options.grace = 3s;
  stage.run();
  CHECK(stage.report.exit_code() == 124);
  CHECK(stage.report.elapsed >= 5s);
  for (const RankReport& rank : stage.report.ranks) CHECK(rank.exit->signal == SIGKILL);
}

TEST_CASE("in simulation what a rank started has the rest of the grace, and no more") {
  for (const bool enough : {true, false}) {
    Stage stage("wrapper");
    stage.options.timeout = 2s;
    stage.options.grace = enough ? 1000h : 500ms;
    stage.run();
    CHECK(stage.report.exit_code() == 124);
    CHECK(stage.notes.printed[0] == (enough ? "saved\n" : ""));
    CHECK(stage.report.elapsed < 4s);
  }
}

TEST_CASE("in simulation a second interrupt does not wait for the grace") {
  Stage stage("stubborn");
  stage.options.grace = 1000h;
  stage.host.scope().spawn(Stage::interrupt(stage, 1s));
  stage.host.scope().spawn(Stage::interrupt(stage, 2s));
  stage.run();
  CHECK(stage.report.exit_code() == 128 + SIGINT);
}

TEST_CASE("in simulation a listener that takes no more ends the gang") {
  Stage stage("worker", {"FOREVER=1"});
  stage.notes.refuse = true;
  stage.run();
  CHECK(stage.report.end == GangEnd::output_lost);
}

TEST_CASE("in simulation a keeper killed at any moment leaves nothing behind") {
  for (Duration moment = 0s; moment < 20ms; moment += 500us) {
    Stage stage("stubborn");
    stage.options.timeout = 10ms;
    stage.options.grace = 5ms;
    stage.host.scope().spawn(Stage::kill_keeper(stage, 100us + moment));
    stage.run();
    const GangEnd end = stage.report.end;
    CHECK((end == GangEnd::keeper_lost || end == GangEnd::timed_out));
    CHECK((end != GangEnd::keeper_lost || stage.report.exit_code() == 1));
  }
}

}  // namespace
}  // namespace tutti
