#include "world/real/environment_search.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace tutti {
namespace {

TEST_CASE("processes are found by what they were started with, to the letter") {
  const std::string mark = "TUTTI_SEARCHED=" + std::to_string(getpid());
  std::string near = mark + "0";
  std::string exact = mark;
  std::string word = "sleep";
  std::string time = "1000";
  const auto start = [&](std::string& setting) {
    char* arguments[] = {word.data(), time.data(), nullptr};
    char* environment[] = {setting.data(), nullptr};
    int ready[2];
    REQUIRE(pipe2(ready, 0) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
      fcntl(ready[1], F_SETFD, FD_CLOEXEC);
      execve("/bin/sleep", arguments, environment);
      _exit(127);
    }
    close(ready[1]);
    char byte = 0;
    (void)!read(ready[0], &byte, 1);  // its end says that the program is another
    close(ready[0]);
    return pid;
  };
  const pid_t one = start(exact);
  const pid_t other = start(near);
  auto found = find_by_environment(mark);
  REQUIRE(found.has_value());
  CHECK(*found == std::vector<pid_t>{one});
  for (const pid_t pid : {one, other}) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  CHECK(find_by_environment(mark)->empty());
}

}  // namespace
}  // namespace tutti
