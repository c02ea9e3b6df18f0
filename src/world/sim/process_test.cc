#include "world/sim/process.h"

#include <doctest/doctest.h>

#include <csignal>
#include <string>

#include "world/sim/simulator.h"

namespace tutti {
namespace {

Task<int> exit_with(SimProcess& process) { co_return static_cast<int>(process.arguments().size()); }

Task<int> sleep_long(SimProcess& process) {
  auto slept = co_await process.clock().sleep(1h);
  co_return slept ? 0 : 1;
}

Task<int> wait_for_term(SimProcess& process) {
  process.catch_signal(SIGTERM);
  auto got = co_await process.next_signal();
  co_return got ? 40 + *got : 1;
}

Task<int> greet(SimProcess& process) {
  auto out = process.take_stream(1);
  if (!out) co_return 1;
  const std::string text = fmt::format("I am {}, {}", process.pid(), process.variable("NAME"));
  const Bytes bytes = as_bytes(text);
  auto written = co_await (*out)->write(bytes);
  co_return written ? 0 : 2;
}

Task<int> leave_orphan(SimProcess& process) {
  auto child = process.processes().spawn({.arguments = {"sleep"}});
  co_return child ? 0 : 1;
}

Task<int> leave_mortal_orphan(SimProcess& process) {
  auto child = process.processes().spawn({.arguments = {"sleep"}, .parent_death_signal = SIGKILL});
  co_return child ? 0 : 1;
}

struct ProcessWorld {
  Simulator sim{{.hosts = 1}};
  Processes& processes = sim.host(0).processes();
  ProcessWorld() {
    sim.set_process("exit", exit_with);
    sim.set_process("sleep", sleep_long);
    sim.set_process("term", wait_for_term);
    sim.set_process("greet", greet);
    sim.set_process("orphan", leave_orphan);
    sim.set_process("mortal", leave_mortal_orphan);
  }
};

Task<Result<void>> run_one(Processes& processes, std::vector<std::string> arguments, int number,
                           Clock& clock, Exit& exit) {
  CO_TRY(auto process, processes.spawn({.arguments = std::move(arguments)}));
  CO_TRY_DO(co_await clock.sleep(1s));
  if (number != 0) CO_TRY_DO(process->signal(number));
  CO_TRY(exit, co_await process->wait());
  CO_TRY(const Exit again, co_await process->wait());
  if (again.code != exit.code) co_return fail(Code::internal, "the exit status changed");
  co_return {};
}

Exit run_to_end(std::vector<std::string> arguments, int number = 0) {
  ProcessWorld world;
  Exit exit;
  auto result = world.sim.run(
      run_one(world.processes, std::move(arguments), number, world.sim.host(0).clock(), exit), 2h);
  REQUIRE(result);
  return exit;
}

Task<Result<void>> look_at_age(Processes& processes, Clock& clock, Usage& usage, size_t& left) {
  CO_TRY(auto process, processes.spawn({.arguments = {"sleep"}}));
  CO_TRY_DO(co_await clock.sleep(3s));
  const pid_t pid = process->pid();
  usage = processes.usage_of(std::span(&pid, 1))[pid];
  CO_TRY_DO(process->signal(SIGKILL));
  CO_TRY(const Exit exit, co_await process->wait());
  static_cast<void>(exit);
  left = processes.usage_of(std::span(&pid, 1)).size();
  co_return {};
}

TEST_CASE("a process has an age, until it has ended") {
  ProcessWorld world;
  Usage usage;
  size_t left = 1;
  REQUIRE(world.sim.run(look_at_age(world.processes, world.sim.host(0).clock(), usage, left), 1h));
  CHECK(usage.age >= 3s);
  CHECK(left == 0);
}

TEST_CASE("a process returns its code, or the signal that ended it") {
  CHECK(run_to_end({"exit", "a", "b"}).code == 3);
  CHECK(run_to_end({"sleep"}).code == 0);
  CHECK(run_to_end({"sleep"}, SIGKILL).signal == SIGKILL);
  CHECK(run_to_end({"sleep"}, SIGTERM).signal == SIGTERM);
  CHECK(run_to_end({"term"}, SIGTERM).code == 40 + SIGTERM);
  CHECK(run_to_end({"term"}, SIGKILL).signal == SIGKILL);
  ProcessWorld world;
  auto unknown = world.processes.spawn({.arguments = {"nonsense"}});
  CHECK(unknown.error().code() == Code::not_found);
}

Task<Result<void>> read_child(SimHost& host, std::string& text) {
  CO_TRY(auto pipe, host.processes().pipe());
  SpawnOptions options;
  options.arguments = {"greet"};
  options.environment = {"NAME=Ada"};
  options.inherit = {{&pipe.writer, 1}};
  CO_TRY(auto child, host.processes().spawn(options));
  pipe.writer.close();
  CO_TRY(auto stream, host.network().adopt(std::move(pipe.reader)));
  char buffer[64];
  for (;;) {
    const MutableBytes into = std::as_writable_bytes(std::span(buffer));
    CO_TRY(const size_t got, co_await stream->read(into));
    if (got == 0) break;
    text.append(buffer, got);
  }
  CO_TRY(const Exit exit, co_await child->wait());
  if (!exit.ok()) co_return fail(Code::internal, "{}", exit.text());
  co_return {};
}

TEST_CASE("a child writes to an inherited pipe, which ends with it") {
  ProcessWorld world;
  std::string text;
  REQUIRE(world.sim.run(read_child(world.sim.host(0), text), 1min));
  CHECK(text == "I am 2, Ada");
  CHECK(world.sim.host(0).handles().size() == 0);
}

Task<Result<void>> start_and_wait(Processes& processes, std::string name) {
  CO_TRY(auto process, processes.spawn({.arguments = {name}}));
  CO_TRY(const Exit exit, co_await process->wait());
  if (!exit.ok()) co_return fail(Code::internal, "{}", exit.text());
  co_return {};
}

TEST_CASE("orphans go to the subreaper, unless their parent's death ends them") {
  ProcessWorld world;
  REQUIRE(world.processes.become_subreaper());
  REQUIRE(world.sim.run(start_and_wait(world.processes, "orphan"), 1min));
  CHECK(world.processes.descendants()->size() == 1);
  CHECK(world.processes.reap_orphans() == 0);
  REQUIRE(world.processes.signal(world.processes.descendants()->at(0), SIGKILL));
  world.sim.run_for(1s);
  CHECK(world.processes.descendants()->empty());
  CHECK(world.processes.reap_orphans() == 1);
  REQUIRE(world.sim.run(start_and_wait(world.processes, "mortal"), 1min));
  world.sim.run_for(1s);
  CHECK(world.processes.descendants()->empty());
}

Task<Result<void>> end_group(Processes& processes, size_t& members) {
  CO_TRY(auto group, processes.create_group("job"));
  SpawnOptions options;
  options.arguments = {"sleep"};
  options.group = group.get();
  std::vector<std::unique_ptr<Process>> children;
  for (int i = 0; i < 3; ++i) {
    CO_TRY(auto child, processes.spawn(options));
    children.push_back(std::move(child));
  }
  CO_TRY(const auto pids, group->members());
  members = pids.size();
  CO_TRY_DO(group->kill());
  CO_TRY_DO(co_await group->emptied());
  CO_TRY(const Exit exit, co_await children[2]->wait());
  if (exit.signal != SIGKILL) co_return fail(Code::internal, "{}", exit.text());
  co_return {};
}

TEST_CASE("a group is killed as one") {
  ProcessWorld world;
  size_t members = 0;
  REQUIRE(world.sim.run(end_group(world.processes, members), 1min));
  CHECK(members == 3);
}

TEST_CASE("a crash of the host takes its processes along") {
  ProcessWorld world;
  auto child = world.processes.spawn({.arguments = {"sleep"}});
  world.sim.run_for(1s);
  CHECK(world.processes.descendants()->size() == 1);
  world.sim.crash(0);
  world.sim.run_for(1s);
  CHECK(world.processes.descendants()->empty());
}

Task<Result<void>> wake_later(SimHost& host, std::atomic<uint32_t>& word) {
  CO_TRY_DO(co_await host.clock().sleep(5ms));
  word = 1;
  host.memory().wake_all(word);
  co_return {};
}

Task<Result<void>> share_word(SimHost& host) {
  CO_TRY(Handle arena, host.memory().create_arena("words", 4096));
  CO_TRY(auto one, host.memory().map(arena, 0, 4096, true));
  CO_TRY(auto two, host.memory().map(arena, 0, 4096, true));
  auto& word = *reinterpret_cast<std::atomic<uint32_t>*>(one->bytes().data());
  auto& same = *reinterpret_cast<std::atomic<uint32_t>*>(two->bytes().data());
  host.scope().spawn(wake_later(host, same));
  CO_TRY_DO(co_await host.memory().wait(word, 0, kNever));
  host.simulator().check(word == 1, "woken before the word changed");
  const Instant soon = host.clock().now() + 1ms;
  auto late = co_await host.memory().wait(word, 1, soon);
  host.simulator().check(!late && late.error().code() == Code::deadline, "waits end in time");
  co_return {};
}

TEST_CASE("processes share arenas and wait on words in them") {
  Simulator sim({.hosts = 1});
  REQUIRE(sim.run(share_word(sim.host(0)), 1min));
}

}  // namespace
}  // namespace tutti
