#include "world/real/memory_kills.h"

#include <doctest/doctest.h>

namespace tutti {

TEST_CASE("what the kernel killed for memory is read from cgroups of either version") {
  CHECK(*parse_memory_kills("low 0\nhigh 0\nmax 31\noom 2\noom_kill 7\noom_group_kill 1\n") == 7);
  CHECK(*parse_memory_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n") == 3);
  for (const char* text :
       {"", "oom_kill", "oom_kill \n", "oom_kill x\n", "oom_kill 1x\n", "oom 3\n"})
    CHECK(parse_memory_kills(text).error().code() == Code::unsupported);
}

TEST_CASE("the innermost cgroup that counts is asked first") {
  const std::string unified = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  CHECK(memory_kill_files(unified, "0::/job/a\n") ==
        std::vector<std::string>{"/sys/fs/cgroup/job/a/memory.events",
                                 "/sys/fs/cgroup/job/memory.events",
                                 "/sys/fs/cgroup/memory.events"});
  const std::string both =
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  CHECK(memory_kill_files(both, "4:memory:/job\n3:cpu,cpuacct:/x\n0::/\n") ==
        std::vector<std::string>{"/sys/fs/cgroup/unified/memory.events",
                                 "/sys/fs/cgroup/memory/job/memory.oom_control"});
  CHECK(memory_kill_files("22 1 0:20 / / rw - ext4 /dev/vda rw\n", "0::/\n").empty());
}

}  // namespace tutti
