#include "world/real/spawn.h"

#include <grp.h>
#include <pwd.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "world/real/fd.h"
#include "world/real/process_test_tools.h"
#include "world/real/temporary_folder_fixture.h"

namespace tutti {

using namespace process_testing;

namespace {

constexpr Spawner::Way kWays[] = {Spawner::Way::best, Spawner::Way::portable};

// Nothing may be left of a spawn that failed.
template <class Body>
void leaves_nothing_behind(Body body) {
  for (const Spawner::Way way : kWays) {
    Host host(way);
    const std::set<int> before = descriptors_of("self");
    body(host);
    CHECK(descriptors_of("self") == before);
    CHECK_FALSE(have_children());
  }
}

}  // namespace

TEST_CASE("a child has exactly the descriptors it was given") {
  for (const Spawner::Way way : kWays) {
    Host host(way);
    auto out = host.processes.pipe();
    auto in = input_pipe(host);
    const Handle leaky = own_fd(open("/dev/null", O_RDONLY));  // not close-on-exec
    SpawnOptions options = script("echo ready; read line");
    options.inherit = {{&in.reader, 0}, {&out->writer, 1}, {&leaky, 7}};
    const auto process = must_spawn(host, options);
    out->writer.close();
    CHECK(read_line(out->reader) == "ready");
    CHECK(descriptors_of(std::to_string(process->pid())) == std::set<int>{0, 1, 2, 7});
    in.writer.close();
    CHECK(host.wait(*process).code == 1);  // read met the end
  }
}

TEST_CASE("descriptors may trade places") {
  for (const Spawner::Way way : kWays) {
    Host host(way);
    auto first = host.processes.pipe();
    auto second = host.processes.pipe();
    const int a = first->writer.number();
    const int b = second->writer.number();
    // By name: dash knows descriptors of one digit only.
    constexpr auto kEchoes = "echo A >/proc/self/fd/{}; echo B >/proc/self/fd/{}; echo C";
    SpawnOptions options = script(fmt::format(kEchoes, a, b));
    options.inherit = {{&first->writer, b}, {&second->writer, a}, {&second->writer, 1}};
    const auto process = must_spawn(host, options);
    first->writer.close();
    second->writer.close();
    CHECK(drain(first->reader) == "B\n");
    CHECK(drain(second->reader) == "A\nC\n");
    host.wait(*process);
  }
}

TEST_CASE("standard descriptors that are not given are /dev/null") {
  Host host;
  CHECK(output_of(host, script("readlink /proc/self/fd/0")) == "/dev/null\n");
}

TEST_CASE("a descriptor number is given once, and within bounds") {
  Host host;
  auto pipe = host.processes.pipe();
  SpawnOptions options = command({"true"});
  options.inherit = {{&pipe->writer, 3}, {&pipe->reader, 3}};
  CHECK(host.processes.spawn(options).error().code() == Code::invalid);
  options.inherit = {{&pipe->writer, 1 << 20}};
  CHECK(host.processes.spawn(options).error().code() == Code::invalid);
}

TEST_CASE("a child gets its arguments, its environment and its folder") {
  for (const Spawner::Way way : kWays) {
    Host host(way);
    SpawnOptions options =
        command({"sh", "-c", "pwd; echo \"$1:$2:$X\"; env | wc -l", "sh", "a b", ""});
    options.environment.push_back("X=y z");
    options.folder = "/usr";
    CHECK(output_of(host, options) == "/usr\na b::y z\n3\n");  // PATH, X and sh's own PWD
  }
}

TEST_CASE("a child starts with default signals, none of them blocked") {
  for (const Spawner::Way way : kWays) {
    Host host(way);
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    const auto ignored_before = std::signal(SIGTERM, SIG_IGN);
    const auto process = must_spawn(host, command({"sleep", "1000"}));
    std::signal(SIGTERM, ignored_before);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    CHECK(status_field(process->pid(), "SigBlk") == "0000000000000000");
    CHECK(status_field(process->pid(), "SigIgn") == "0000000000000000");
    REQUIRE(process->signal(SIGTERM).has_value());
    CHECK(host.wait(*process).signal == SIGTERM);
  }
}

TEST_CASE("spawning leaves our own signal mask as it was") {
  Host host;
  sigset_t before;
  sigset_t after;
  sigprocmask(SIG_SETMASK, nullptr, &before);
  run(host, command({"true"}));
  sigprocmask(SIG_SETMASK, nullptr, &after);
  for (int number = 1; number < NSIG; ++number)
    CHECK(sigismember(&before, number) == sigismember(&after, number));
}

TEST_CASE("a child may lead a session and be nicer") {
  Host host;
  SpawnOptions options = command({"sleep", "1000"});
  options.new_session = true;
  options.nice = 5;
  const auto process = must_spawn(host, options);
  CHECK(getsid(process->pid()) == process->pid());
  CHECK(getpriority(PRIO_PROCESS, static_cast<id_t>(process->pid())) ==
        std::min(getpriority(PRIO_PROCESS, 0) + 5, 19));  // the nicest there is
  REQUIRE(process->signal(SIGKILL).has_value());
  host.wait(*process);
}

TEST_CASE("a child may be another user, with that user's groups") {
  if (geteuid() != 0) return;  // only root may
  for (const Spawner::Way way : kWays) {
    Host host(way);
    const passwd* nobody = getpwnam("nobody");
    REQUIRE(nobody != nullptr);
    SpawnOptions options = script("id -u; id -g; id -G; grep Groups /proc/self/status | wc -w");
    options.user = nobody->pw_uid;
    CHECK(output_of(host, options) ==
          fmt::format("{}\n{}\n{}\n2\n", nobody->pw_uid, nobody->pw_gid, nobody->pw_gid));
    options.user_group = 4242;
    CHECK(output_of(host, options).starts_with(fmt::format("{}\n4242\n4242\n", nobody->pw_uid)));
    options.user = 54321;
    options.user_group.reset();
    CHECK(host.processes.spawn(options).error().text() ==
          "user 54321 is not in the user database; give its group as well");
  }
}

TEST_CASE("a user who may not become another is told so") {
  if (geteuid() != 0) return;
  leaves_nothing_behind([](Host& host) {
    REQUIRE(seteuid(65534) == 0);
    SpawnOptions options = command({"true"});
    options.user = 0;
    const auto spawned = host.processes.spawn(options);
    REQUIRE(seteuid(0) == 0);
    REQUIRE_FALSE(spawned.has_value());
    CHECK(spawned.error().code() == Code::denied);
    CHECK(spawned.error().text() ==
          "become user 0 of group 0: Operation not permitted; only root may");
  });
}

TEST_CASE("a command that cannot be started is explained") {
  const TemporaryFolder folder;
  const std::string plain = folder.write("plain", "echo hello\n", 0644);
  const std::string orphan = folder.write("orphan", "#! /no/such/shell -e\n", 0755);
  const std::string headless = folder.write("headless", "echo hello\n", 0755);
  const std::string windows = folder.write("windows", "#!/bin/sh\r\necho hello\r\n", 0755);
  leaves_nothing_behind([&](Host& host) {
    const auto error = [&](std::string what, std::string in = "") {
      SpawnOptions options = command({std::move(what)});
      options.folder = std::move(in);
      auto spawned = host.processes.spawn(options);
      REQUIRE_FALSE(spawned.has_value());
      return spawned.error();
    };
    CHECK(error("no-such-thing").text() ==
          "no-such-thing: no such command; is it installed and in PATH?");
    CHECK(error("no-such-thing").code() == Code::not_found);
    CHECK(error("/no/such/thing").text() == "/no/such/thing: no such file; check the path");
    CHECK(error(plain).text() == fmt::format("{0}: not executable: chmod +x {0}", plain));
    CHECK(error(plain).code() == Code::denied);
    CHECK(error("./plain", folder.path).text() == "./plain: not executable: chmod +x ./plain");
    CHECK(error("plain", folder.path).text() ==
          "plain: no such command in PATH; there is a file: say ./plain");
    CHECK(error(folder.path).text() == fmt::format("{}: is a folder, not a command", folder.path));
    CHECK(error(orphan).text() ==
          fmt::format("{}: bad interpreter /no/such/shell: no such file; correct the script's "
                      "first line",
                      orphan));
    CHECK(error(windows).text().find("Windows line ends") != std::string::npos);
    CHECK(error(headless).code() == Code::invalid);
    CHECK(error("true", "/no/such/folder").text() ==
          "folder /no/such/folder: No such file or directory");
    CHECK(error("true", plain).text() == fmt::format("folder {}: Not a directory", plain));
    CHECK(error("").text() == "no command given");
  });
}

TEST_CASE("too long arguments and zero bytes in them are refused") {
  leaves_nothing_behind([](Host& host) {
    const auto spawned = host.processes.spawn(command({"true", std::string(4 << 20, 'x')}));
    REQUIRE_FALSE(spawned.has_value());
    CHECK(spawned.error().code() == Code::invalid);
    CHECK(spawned.error().text().find("too long") != std::string::npos);
    CHECK(host.processes.spawn(command({"true", std::string("a\0b", 3)})).error().code() ==
          Code::invalid);
    CHECK(host.processes.spawn(SpawnOptions{}).error().text() == "no command given");
  });
}

TEST_CASE("a spawn without free descriptors fails whole") {
  leaves_nothing_behind([](Host& host) {
    const LimitDescriptors limit(0);
    const auto spawned = host.processes.spawn(command({"true"}));
    REQUIRE_FALSE(spawned.has_value());
    CHECK(spawned.error().code() == Code::exhausted);
    CHECK(spawned.error().text().find("ulimit -n") != std::string::npos);
  });
}

TEST_CASE("a child that runs out of descriptors on its way fails whole") {
  leaves_nothing_behind([](Host& host) {
    auto pipe = host.processes.pipe();
    const LimitDescriptors limit(1);  // for the pidfd; the child has to move two out of the way
    SpawnOptions options = command({"true"});
    options.inherit = {{&pipe->reader, pipe->writer.number()},
                       {&pipe->writer, pipe->reader.number()}};
    const auto spawned = host.processes.spawn(options);
    REQUIRE_FALSE(spawned.has_value());
    CHECK(spawned.error().code() == Code::exhausted);
    CHECK(spawned.error().text().starts_with("give descriptors to the child: "));
  });
}

TEST_CASE("PATH is the child's own") {
  const TemporaryFolder folder;
  folder.write("greet", "#!/bin/sh\necho hello\n", 0755);
  Host host;
  SpawnOptions options = command({"greet"});
  options.environment = {"PATH=/nowhere:" + folder.path};
  CHECK(output_of(host, options) == "hello\n");
  options.environment = {"PATH=:/nowhere"};  // an empty part is the folder the child runs in
  options.folder = folder.path;
  CHECK(output_of(host, options) == "hello\n");
}

}  // namespace tutti
