// The least a gang can cost here: posix_spawn of a command n times, and waiting for all of them.
//   bench_launch 32 /bin/true    prints milliseconds
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

double now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int count = static_cast<int>(std::strtol(argv[1], nullptr, 10));
  const double start = now_ms();
  for (int i = 0; i < count; ++i) {
    pid_t pid = 0;
    if (posix_spawn(&pid, argv[2], nullptr, nullptr, argv + 2, environ) != 0) return 1;
  }
  int status = 0;
  while (wait(&status) > 0) {
    if (status != 0) return 1;
  }
  std::printf("%f\n", now_ms() - start);
  return 0;
}
