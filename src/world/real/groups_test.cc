#include "world/real/groups.h"

#include <csignal>
#include <filesystem>

#include "world/real/process_test_tools.h"

namespace tutti {

using namespace process_testing;

namespace {

std::string unique_name(const char* what) { return fmt::format("test-{}-{}", what, getpid()); }

// Groups are tested where there are any.
std::unique_ptr<ProcessGroup> make_group(Host& host, const char* what) {
  auto group = host.processes.create_group(unique_name(what));
  if (group) return std::move(*group);
  MESSAGE("no groups here: " << group.error().text());
  CHECK(group.error().code() == Code::unsupported);
  return nullptr;
}

Task<Result<void>> give_up_waiting(Loop& loop, ProcessGroup& group) {
  Scope scope;
  scope.spawn(group.emptied());
  auto slept = co_await loop.clock().sleep(1ms);
  scope.cancel();
  auto joined = co_await scope.join();
  co_return slept;
}

void reap_all() {
  while (waitpid(-1, nullptr, 0) > 0) {
  }
}

}  // namespace

TEST_CASE("a killed group takes daemons and session leaders with it") {
  for (const bool modern : {true, false}) {
    Host host(modern ? Spawner::Way::best : Spawner::Way::portable);
    REQUIRE(host.processes.become_subreaper().has_value());
    const auto group = make_group(host, "escape");
    if (group == nullptr) return;
    auto pipe = host.processes.pipe();
    SpawnOptions options = script(
        "setsid sleep 1000 & (setsid sh -c 'trap \"\" TERM HUP; sleep 1001 & sleep 1002 & echo up; "
        "wait' &) ; exec sleep 1003");
    options.group = group.get();
    options.inherit = {{&pipe->writer, 1}};
    const auto process = must_spawn(host, options);
    pipe->writer.close();
    CHECK(read_line(pipe->reader) == "up");
    auto members = group->members();
    CHECK(members->size() >= 4);
    CHECK(std::find(members->begin(), members->end(), process->pid()) != members->end());

    if (modern) {
      REQUIRE(group->kill().has_value());
    } else {
      kill_one_by_one(group_folder(*group));
    }
    CHECK(host.loop.run(group->emptied()).has_value());
    CHECK(group->members()->empty());
    CHECK(host.wait(*process).signal == SIGKILL);
    CHECK(drain(pipe->reader).empty());  // every holder of the other end is gone
    reap_all();
  }
}

TEST_CASE("groups of dead makers are ended and removed, those of living ones are not") {
  Host host;
  REQUIRE(host.processes.become_subreaper().has_value());
  const auto ours = make_group(host, "living");
  if (ours == nullptr) return;
  // As a maker leaves it that was killed: its number and start are nobody's now.
  const std::string here =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", group_folder(*ours)));
  const auto maker = must_spawn(host, command({"true"}));
  const std::string parent = here.substr(0, here.rfind('/'));
  const std::string pid_namespace = here.substr(here.rfind('.') + 1);
  const std::string left =
      fmt::format("{}/tutti-{}@{}.1.{}", parent, unique_name("left"), maker->pid(), pid_namespace);
  const std::string elsewhere =  // of a maker in a container that we cannot see into
      fmt::format("{}/tutti-{}@{}.1.7", parent, unique_name("elsewhere"), maker->pid());
  host.wait(*maker);
  REQUIRE(mkdir(left.c_str(), 0755) == 0);
  REQUIRE(mkdir(elsewhere.c_str(), 0755) == 0);
  auto group = host.processes.open_group(unique_name("left"));
  REQUIRE(group.has_value());
  SpawnOptions options = command({"sleep", "1000"});
  options.group = group->get();
  const auto member = must_spawn(host, options);

  CHECK(host.processes.sweep_groups() >= 1);  // others may have left some too
  CHECK(host.wait(*member).signal == SIGKILL);
  CHECK(!std::filesystem::exists(left));
  CHECK(std::filesystem::exists(here));
  CHECK(rmdir(elsewhere.c_str()) == 0);
}

TEST_CASE("a maker that cannot be looked at is not taken for dead") {
  Host host;
  const auto ours = make_group(host, "looked-at");
  if (ours == nullptr) return;
  const std::string path =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", group_folder(*ours)));
  const std::string folder = path.substr(path.rfind('/') + 1);
  CHECK_FALSE(maker_died(folder));
  bool died = false;
  {
    const LimitDescriptors limit(0);  // the sanitizers need some for themselves: check outside
    died = maker_died(folder);
  }
  CHECK_FALSE(died);
}

TEST_CASE("a group is removed when it is empty and forgotten") {
  Host host;
  {
    const auto group = make_group(host, "removed");
    if (group == nullptr) return;
    CHECK(group->name() == unique_name("removed"));
    CHECK(host.loop.run(group->emptied()).has_value());
    CHECK(host.processes.create_group(unique_name("removed")).error().code() == Code::exists);
  }
  CHECK(host.processes.open_group(unique_name("removed")).error().code() == Code::not_found);
}

TEST_CASE("a group with members outlives its object and can be opened again") {
  Host host;
  std::unique_ptr<Process> process;
  {
    const auto group = make_group(host, "kept");
    if (group == nullptr) return;
    SpawnOptions options = command({"sleep", "1000"});
    options.group = group.get();
    process = must_spawn(host, options);
  }
  auto group = host.processes.open_group(unique_name("kept"));
  REQUIRE(group.has_value());
  CHECK(*(*group)->members() == std::vector<pid_t>{process->pid()});
  REQUIRE((*group)->kill().has_value());
  CHECK(host.loop.run((*group)->emptied()).has_value());
  CHECK(host.wait(*process).signal == SIGKILL);
  group->reset();
  CHECK(host.processes.open_group(unique_name("kept")).error().code() == Code::not_found);
}

TEST_CASE("groups that members made are ended and removed with theirs") {
  Host host;
  const auto group = make_group(host, "nested");
  if (group == nullptr) return;
  const std::string folder =
      fmt::format("/proc/self/fd/{}/inner", group_folder(*group));  // the group's own folder
  REQUIRE(mkdir(folder.c_str(), 0755) == 0);
  auto pipe = host.processes.pipe();
  SpawnOptions options =
      script(fmt::format("echo 0 > /proc/{}/fd/{}/inner/cgroup.procs && echo in && exec sleep 1000",
                         getpid(), group_folder(*group)));
  options.group = group.get();
  options.inherit = {{&pipe->writer, 1}};
  const auto process = must_spawn(host, options);
  CHECK(read_line(pipe->reader) == "in");
  CHECK(*group->members() == std::vector<pid_t>{process->pid()});
  REQUIRE(group->kill().has_value());
  CHECK(host.loop.run(group->emptied()).has_value());
  CHECK(host.wait(*process).signal == SIGKILL);
}

TEST_CASE("a group is as new until it has members, groups in it, or was killed") {
  Host host;
  const auto group = make_group(host, "as-new");
  if (group == nullptr) return;
  CHECK(group->as_new());
  SpawnOptions options = script("read line");
  auto pipe = input_pipe(host);
  options.inherit = {{&pipe.reader, 0}};
  options.group = group.get();
  const auto process = must_spawn(host, options);
  CHECK(!group->as_new());
  REQUIRE(process->signal(SIGKILL).has_value());
  CHECK(host.wait(*process).signal == SIGKILL);
  CHECK(host.loop.run(group->emptied()).has_value());
  CHECK(group->as_new());
  const std::string here =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", group_folder(*group)));
  std::filesystem::create_directory(here + "/below");
  CHECK(!group->as_new());
  std::filesystem::remove(here + "/below");
  CHECK(group->as_new());
  REQUIRE(group->kill().has_value());
  CHECK(!group->as_new());
}

TEST_CASE("waiting for a group to be empty can be given up") {
  Host host;
  const auto group = make_group(host, "waited");
  if (group == nullptr) return;
  SpawnOptions options = command({"sleep", "1000"});
  options.group = group.get();
  const auto process = must_spawn(host, options);
  CHECK(host.loop.run(give_up_waiting(host.loop, *group)).has_value());
  REQUIRE(group->kill().has_value());
  CHECK(host.loop.run(group->emptied()).has_value());
  host.wait(*process);
}

TEST_CASE("names that would leave the folder of groups are refused") {
  Host host;
  for (const char* name : {"", "a/b", "../x"})
    CHECK(host.processes.create_group(name).error().code() == Code::invalid);
  CHECK(host.processes.open_group(std::string(300, 'x')).error().code() == Code::invalid);
}

TEST_CASE("groups go below our own cgroup, wherever cgroup2 is mounted") {
  const std::string unified =
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:3 - cgroup cgroup rw,cpu\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
  CHECK(group_parents(unified, "3:cpu:/x\n0::/\n") ==
        std::vector<std::string>{"/sys/fs/cgroup/unified"});
  CHECK(group_parents(unified, "3:cpu:/x\n0::/user.slice/a\n") ==
        std::vector<std::string>{"/sys/fs/cgroup/unified/user.slice/a"});
  const std::string part = "41 31 0:38 /user.slice /mnt/my\\040groups rw - cgroup2 none rw\n";
  CHECK(group_parents(part, "0::/user.slice/a\n") == std::vector<std::string>{"/mnt/my groups/a"});
  CHECK(group_parents(part, "0::/user.slice2\n") == std::vector<std::string>{"/mnt/my groups"});
  CHECK(group_parents(part, "0::/../outside\n") == std::vector<std::string>{"/mnt/my groups"});
  CHECK(group_parents("22 1 0:20 / / rw - ext4 /dev/vda rw\n", "0::/\n").empty());
}

}  // namespace tutti
