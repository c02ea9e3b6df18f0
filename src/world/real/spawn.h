// Starts a process: the parent's side.
#pragma once

#include <memory>

#include "world/handle.h"
#include "world/processes.h"

namespace tutti {

struct Spawned {
  pid_t pid;
  Handle pidfd;
};

// Starts processes, one at a time; of one thread. The child borrows this process's memory until it
// executes, so that starting costs the same whatever the size of this process.
class Spawner {
 public:
  // clone3 puts the child into its group as it is made; the portable way, for kernels and
  // architectures without, lets the child go there itself.
  enum class Way : unsigned char { best, portable };
  explicit Spawner(Way way = Way::best) : way_(way) {}
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // `group` is the folder of the cgroup to start in, or -1.
  Result<Spawned> spawn(const SpawnOptions& options, int group);

 private:
  Result<void> make_stack();

  Way way_;
  std::byte* stack_ = nullptr;  // the child's, used again by the next
};

}  // namespace tutti
