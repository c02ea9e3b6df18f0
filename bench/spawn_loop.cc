// The least that many small jobs can cost here: one thread that keeps some posix_spawned processes
// in flight until all have run.
//   bench_spawn_loop 1000 32 /bin/true    prints processes per second
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

double now_s() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const long count = std::strtol(argv[1], nullptr, 10);
  const long most = std::strtol(argv[2], nullptr, 10);
  if (count < 1 || most < 1) return 2;
  const double start = now_s();
  long started = 0;
  for (long ended = 0; ended < count; ++ended) {
    for (; started < count && started - ended < most; ++started) {
      pid_t pid = 0;
      if (posix_spawn(&pid, argv[3], nullptr, nullptr, argv + 3, environ) != 0) return 1;
    }
    int status = 0;
    if (wait(&status) < 0 || status != 0) return 1;
  }
  std::printf("%f\n", static_cast<double>(count) / (now_s() - start));
  return 0;
}
