#include "world/real/processes.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <termios.h>

#include <csignal>

#include "world/real/process_test_tools.h"
#include "world/real/temporary_folder_fixture.h"

namespace tutti {

using namespace process_testing;

namespace {

// Reaps until `count` orphans have been collected.
Task<Result<void>> reap(Loop& loop, RealProcesses& processes, size_t count) {
  size_t reaped = 0;
  while (reaped < count) {
    reaped += processes.reap_orphans();
    CO_TRY_DO(co_await loop.clock().sleep(1ms));
  }
  co_return {};
}

Task<Result<void>> wait_for(Process& process) {
  CO_TRY(const Exit exit, co_await process.wait());
  static_cast<void>(exit);
  co_return {};
}

Task<Result<void>> wait_and_give_up(Loop& loop, Process& process) {
  Scope scope;
  scope.spawn(wait_for(process));
  auto slept = co_await loop.clock().sleep(1ms);
  scope.cancel();
  auto joined = co_await scope.join();
  co_return slept;
}

// Becomes a parent that waits to be killed, having told its child's number through the pipe.
[[noreturn]] void be_a_parent(int tell) {
  Host host;
  SpawnOptions options = command({"sleep", "1000"});
  options.parent_death_signal = SIGKILL;
  const auto process = must_spawn(host, options);
  const pid_t pid = process->pid();
  const bool told = write(tell, &pid, sizeof pid) == sizeof pid;
  while (told) pause();
  _exit(1);
}

Task<void> note_exit(Process& process, size_t index, std::vector<size_t>& order) {
  auto exit = co_await process.wait();
  CHECK(exit.has_value());
  order.push_back(index);
}

Task<void> note_exits(std::vector<std::unique_ptr<Process>>& processes,
                      std::vector<size_t>& order) {
  Scope scope;
  for (size_t i = 0; i < processes.size(); ++i) scope.spawn(note_exit(*processes[i], i, order));
  auto joined = co_await scope.join();
  CHECK(joined.has_value());
}

// Started together: as many as there are scripts.
struct Together {
  Together(Host& host, const std::vector<std::string>& scripts, int death_signal = 0) {
    for (const std::string& text : scripts) options.push_back(script(text));
    for (SpawnOptions& one : options) one.parent_death_signal = death_signal;
    std::vector<const SpawnOptions*> all;
    for (const SpawnOptions& one : options) all.push_back(&one);
    spawns = host.processes.spawn_all(all);
  }
  std::vector<SpawnOptions> options;
  Processes::Spawns spawns;
};

}  // namespace

TEST_CASE("of many that are started together each is what it was asked to be") {
  for (const auto way : {Spawner::Way::best, Spawner::Way::portable}) {
    Host host(way);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::string> scripts;
      for (int i = 0; i < 40; ++i) scripts.push_back(fmt::format("exit {}", i));
      Together together(host, scripts, SIGKILL);
      REQUIRE(together.spawns.size() == 40);
      for (int i = 0; i < 40; ++i) {
        auto& spawned = together.spawns[static_cast<size_t>(i)];
        REQUIRE(spawned.has_value());
        CHECK(host.wait(**spawned).code == i);
      }
      CHECK(host.processes.childless());
    }
  }
}

TEST_CASE("the exits of many that were started together are told in the order they happened") {
  Host host;
  Together together(host, std::vector<std::string>(6, "exec sleep 1000"));
  std::vector<std::unique_ptr<Process>> processes;
  for (auto& spawned : together.spawns) processes.push_back(std::move(*spawned));
  const std::vector<size_t> killed = {4, 1, 5, 0, 3, 2};
  for (const size_t i : killed) {
    kill(processes[i]->pid(), SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(processes[i]->pid()), &info, WEXITED | WNOWAIT);
  }
  std::vector<size_t> order;
  host.loop.run(note_exits(processes, order));
  CHECK(order == killed);
}

TEST_CASE("when one of many cannot be started, the rest is not begun, and says so") {
  Host host;
  std::vector<SpawnOptions> options(30, command({"true"}));
  options[2] = command({"/no/such/command"});
  std::vector<const SpawnOptions*> all;
  for (const SpawnOptions& one : options) all.push_back(&one);
  Processes::Spawns spawns = host.processes.spawn_all(all);
  REQUIRE(spawns.size() == 30);
  CHECK(spawns[2].error().code() == Code::not_found);
  CHECK(spawns[29].error().code() == Code::cancelled);
  for (auto& spawned : spawns)
    if (spawned) CHECK(host.wait(**spawned).ok());
  CHECK(host.processes.childless());
}

TEST_CASE("the exits of many are told in the order they happened, not in which they are awaited") {
  Host host;
  std::vector<std::unique_ptr<Process>> processes;
  for (int i = 0; i < 4; ++i) processes.push_back(must_spawn(host, command({"sleep", "1000"})));
  for (const size_t i : {2, 0, 3, 1}) {
    kill(processes[i]->pid(), SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(processes[i]->pid()), &info, WEXITED | WNOWAIT);
  }
  std::vector<size_t> order;
  host.loop.run(note_exits(processes, order));
  CHECK(order == std::vector<size_t>{2, 0, 3, 1});
}

Task<void> until_child_works(Loop& loop, RealProcesses& processes, pid_t pid, Usage& usage) {
  // As the kernel counts: in hundredths of a second, as a rule.
  while (usage.processor < 20ms) {
    usage = processes.usage_of(std::span(&pid, 1))[pid];
    auto slept = co_await loop.clock().sleep(1ms);
    if (!slept) co_return;
  }
}

TEST_CASE("what a process started counts as its own use, until it has ended") {
  Host host;
  REQUIRE(host.processes.become_subreaper().has_value());
  SpawnOptions options = command({"sh", "-c", "(while :; do :; done) & wait"});
  options.new_session = true;
  const auto process = must_spawn(host, options);
  Usage usage;
  host.loop.run(until_child_works(host.loop, host.processes, process->pid(), usage));
  CHECK(usage.processor >= 20ms);
  CHECK(usage.memory_bytes > 0);
  CHECK(usage.age > 0s);
  CHECK(process->signal_family(SIGKILL).has_value());
  CHECK(host.loop.run(process->wait()).has_value());
  CHECK(host.loop.run(reap(host.loop, host.processes, 1)).has_value());
  const pid_t pid = process->pid();
  CHECK(host.processes.usage_of(std::span(&pid, 1)).empty());
}

TEST_CASE("an exit code and a fatal signal are told apart") {
  Host host;
  const Exit failed = run(host, script("exit 3"));
  CHECK(failed.code == 3);
  CHECK(failed.signal == 0);
  CHECK(failed.text() == "exit code 3");
  const Exit killed = run(host, script("kill -TERM $$"));
  CHECK(killed.signal == SIGTERM);
  CHECK(killed.shell_code() == 128 + SIGTERM);
  CHECK_FALSE(killed.core_dumped);
  CHECK(run(host, command({"true"})).ok());
}

TEST_CASE("a core dump is reported") {
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  if (limit.rlim_max == 0 && geteuid() != 0) return;
  const TemporaryFolder folder;
  Host host;
  SpawnOptions options = script("ulimit -c 100000 && kill -SEGV $$");
  options.folder = folder.path;
  const Exit exit = run(host, options);
  CHECK(exit.signal == SIGSEGV);
  CHECK(exit.core_dumped);
  CHECK(exit.text() == "killed by SIGSEGV (segmentation fault, core dumped)");
}

TEST_CASE("what a process used is told at its end") {
  Host host;
  const Exit exit = run(host, script("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"));
  CHECK(exit.user_time > Duration::zero());
  CHECK(exit.peak_memory_bytes > 100_KiB);
  rusage ours{};
  getrusage(RUSAGE_CHILDREN, &ours);
  CHECK(to_seconds(exit.user_time) <= static_cast<double>(ours.ru_utime.tv_sec) + 1.0);
}

TEST_CASE("an exit status waits until it is asked for, and may be asked for again") {
  Host host;
  const auto process = must_spawn(host, script("exit 7"));
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(process->pid()), &info, WEXITED | WNOWAIT) == 0);
  CHECK(host.wait(*process).code == 7);
  CHECK(host.wait(*process).code == 7);
}

TEST_CASE("signals reach a process by its descriptor until it has ended") {
  Host host;
  const auto process = must_spawn(host, command({"sleep", "1000"}));
  CHECK(process->signal(0).has_value());
  REQUIRE(process->signal(SIGKILL).has_value());
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(process->pid()), &info, WEXITED | WNOWAIT) == 0);
  CHECK(process->signal(SIGTERM).error().code() == Code::not_found);
  CHECK(host.wait(*process).signal == SIGKILL);
  CHECK(host.processes.signal(process->pid(), SIGTERM).error().code() == Code::not_found);
  CHECK(host.processes.signal(0, SIGTERM).error().code() == Code::invalid);
  CHECK(host.processes.signal(-1, SIGTERM).error().code() == Code::invalid);
}

TEST_CASE("waiting for a process can be given up and begun again") {
  Host host;
  const auto process = must_spawn(host, command({"sleep", "1000"}));
  CHECK(host.loop.run(wait_and_give_up(host.loop, *process)).has_value());
  REQUIRE(process->signal(SIGTERM).has_value());
  CHECK(host.wait(*process).signal == SIGTERM);
}

TEST_CASE("a process whose object is gone is reaped like an orphan") {
  Host host;
  auto pipe = input_pipe(host);
  SpawnOptions options = script("read line");
  options.inherit = {{&pipe.reader, 0}};
  {
    const auto process = must_spawn(host, options);
  }
  CHECK(host.processes.reap_orphans() == 0);
  pipe.writer.close();
  CHECK(host.loop.run(reap(host.loop, host.processes, 1)).has_value());
  CHECK_FALSE(have_children());
}

TEST_CASE("reaping orphans keeps the exit status of a process that is still wanted") {
  Host host;
  const auto process = must_spawn(host, script("exit 9"));
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(process->pid()), &info, WEXITED | WNOWAIT) == 0);
  CHECK(host.processes.reap_orphans() == 0);
  CHECK(host.wait(*process).code == 9);
}

TEST_CASE("a subreaper sees its descendants, and adopts and reaps orphans") {
  Host host;
  REQUIRE(host.processes.become_subreaper().has_value());
  auto pipe = host.processes.pipe();
  SpawnOptions options = script("(sleep 1000 & echo $!); echo its parent is gone; read line");
  auto hold = input_pipe(host);
  options.inherit = {{&pipe->writer, 1}, {&hold.reader, 0}};
  const auto process = must_spawn(host, options);
  const pid_t daemon = std::stoi(read_line(pipe->reader));
  CHECK(read_line(pipe->reader) == "its parent is gone");

  auto descendants = host.processes.descendants();
  REQUIRE(descendants.has_value());
  CHECK(std::set<pid_t>(descendants->begin(), descendants->end()) ==
        std::set<pid_t>{process->pid(), daemon});

  REQUIRE(host.processes.signal(daemon, SIGKILL).has_value());
  hold.writer.close();
  host.wait(*process);
  CHECK(host.loop.run(reap(host.loop, host.processes, 1)).has_value());
  CHECK(host.processes.descendants()->empty());
  CHECK_FALSE(have_children());
}

TEST_CASE("descendants are listed parents first") {
  Host host;
  auto pipe = host.processes.pipe();
  SpawnOptions options = script("sh -c 'sh -c \"echo ready; read line\"; true'; true");
  auto hold = input_pipe(host);
  options.inherit = {{&hold.reader, 0}, {&pipe->writer, 1}};
  const auto process = must_spawn(host, options);
  CHECK(read_line(pipe->reader) == "ready");
  auto descendants = host.processes.descendants();
  REQUIRE(descendants->size() == 3);
  CHECK(descendants->front() == process->pid());
  for (size_t i = 1; i < 3; ++i)
    CHECK(status_field((*descendants)[i], "PPid") == std::to_string((*descendants)[i - 1]));
  hold.writer.close();
  host.wait(*process);
}

TEST_CASE("descendants are found when no descriptor is left") {
  Host host;
  REQUIRE(host.processes.become_subreaper().has_value());
  const auto process = must_spawn(host, command({"sleep", "1000"}));
  ProcessTree unprepared;
  Result<std::vector<pid_t>> found, refused;
  {
    const LimitDescriptors limit(0);  // the sanitizers need some for themselves: check outside
    found = host.processes.descendants();
    refused = unprepared.descendants_of(getpid(), {});
  }
  REQUIRE(process->signal(SIGKILL).has_value());
  host.wait(*process);
  REQUIRE_MESSAGE(found.has_value(), (found ? "" : found.error().text()));
  CHECK(*found == std::vector<pid_t>{process->pid()});
  // Whoever kept none in reserve is not told that there are no processes.
  CHECK(refused.error().code() == Code::exhausted);
}

TEST_CASE("what is to be spared is not among the descendants, nor what is below it") {
  Host host;
  auto pipe = host.processes.pipe();
  SpawnOptions options = script("sh -c 'echo ready; read line'; true");
  auto hold = input_pipe(host);
  options.inherit = {{&hold.reader, 0}, {&pipe->writer, 1}};
  const auto stranger = must_spawn(host, options);
  const auto ours = must_spawn(host, command({"sleep", "1000"}));
  CHECK(read_line(pipe->reader) == "ready");
  const pid_t spare[] = {stranger->pid()};
  CHECK(*host.processes.descendants(spare) == std::vector<pid_t>{ours->pid()});
  CHECK_FALSE(host.processes.childless());
  REQUIRE(ours->signal(SIGKILL).has_value());
  hold.writer.close();
  host.wait(*ours);
  host.wait(*stranger);
  CHECK(host.processes.childless());
}

TEST_CASE("a family is signalled as one, and lives until its last member is gone") {
  Host host;
  REQUIRE(host.processes.become_subreaper().has_value());
  auto pipe = host.processes.pipe();
  SpawnOptions options = script("(trap '' USR1; echo ready; exec sleep 1000) & exec sleep 1000");
  options.new_session = true;
  options.inherit = {{&pipe->writer, 1}};
  const auto leader = must_spawn(host, options);
  CHECK(read_line(pipe->reader) == "ready");
  REQUIRE(leader->signal_family(SIGUSR1).has_value());
  CHECK(host.wait(*leader).signal == SIGUSR1);
  CHECK(host.processes.family_lives(leader->pid()));
  CHECK(leader->signal_family(SIGKILL).error().code() == Code::not_found);
  REQUIRE(host.processes.signal(host.processes.descendants()->at(0), SIGKILL).has_value());
  CHECK(host.loop.run(reap(host.loop, host.processes, 1)).has_value());
  CHECK_FALSE(host.processes.family_lives(leader->pid()));
}

TEST_CASE("a child ends with its parent when it shall") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  const pid_t parent = fork();
  if (parent == 0) be_a_parent(ends[1]);
  pid_t child = 0;
  REQUIRE(read(ends[0], &child, sizeof child) == sizeof child);
  kill(parent, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(parent, &status, 0) == parent);
  REQUIRE(waitpid(child, &status, 0) == child);  // an orphan by now, and so ours
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a program in a terminal finds it and its size") {
  for (const Spawner::Way way : {Spawner::Way::best, Spawner::Way::portable}) {
    Host host(way);
    auto terminal = host.processes.terminal(100, 30);
    REQUIRE(terminal.has_value());
    CHECK((fcntl(terminal->ours.number(), F_GETFL) & O_NONBLOCK) != 0);
    CHECK((fcntl(terminal->theirs.number(), F_GETFL) & O_NONBLOCK) == 0);
    SpawnOptions options = script("tty; stty size </dev/tty; kill -INT $$; sleep 1");
    const Handle& theirs = terminal->theirs;
    options.inherit = {{&theirs, 0}, {&theirs, 1}, {&theirs, 2}};
    options.new_session = true;
    options.controlling_terminal = true;
    const auto process = must_spawn(host, options);
    terminal->theirs.close();
    const std::string text = drain(terminal->ours);
    CHECK(text.starts_with("/dev/pts/"));
    CHECK(text.find("30 100") != std::string::npos);
    CHECK(host.wait(*process).signal == SIGINT);
  }
}

TEST_CASE("Ctrl-C typed into a terminal interrupts its program") {
  Host host;
  auto terminal = host.processes.terminal(80, 24);
  SpawnOptions options = script("echo ready; exec sleep 1000");
  const Handle& theirs = terminal->theirs;
  options.inherit = {{&theirs, 0}, {&theirs, 1}, {&theirs, 2}};
  options.new_session = true;
  options.controlling_terminal = true;
  const auto process = must_spawn(host, options);
  fcntl(terminal->ours.number(), F_SETFL, 0);
  CHECK(read_line(terminal->ours) == "ready\r");
  REQUIRE(write(terminal->ours.number(), "\x03", 1) == 1);
  CHECK(host.wait(*process).signal == SIGINT);
}

TEST_CASE("only a new session can have a terminal, and only a terminal can be one") {
  Host host;
  SpawnOptions options = command({"true"});
  options.controlling_terminal = true;
  CHECK(host.processes.spawn(options).error().code() == Code::invalid);
  options.new_session = true;  // descriptor 0 is /dev/null
  CHECK(host.processes.spawn(options).error().text().starts_with(
      "take descriptor 0 as the controlling terminal: "));
}

TEST_CASE("pipes and terminals are not inherited by accident") {
  Host host;
  auto pipe = host.processes.pipe();
  auto terminal = host.processes.terminal(80, 24);
  for (const Handle* handle : {&pipe->reader, &pipe->writer, &terminal->ours, &terminal->theirs})
    CHECK((fcntl(handle->number(), F_GETFD) & FD_CLOEXEC) != 0);
}

}  // namespace tutti
