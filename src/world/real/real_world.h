// The World of a process on Linux, with the loop of the thread that made it.
//
//   RealWorld world({.spin = 0s});
//   return world.run(main_task(world));
#pragma once

#include <string>
#include <utility>

#include "world/real/disk.h"
#include "world/real/loop.h"
#include "world/real/memory.h"
#include "world/real/network.h"
#include "world/real/processes.h"
#include "world/real/random.h"
#include "world/world.h"

namespace tutti {

class RealWorld final : public World {
 public:
  explicit RealWorld(LoopOptions options = {});

  // Runs the loop until the task is done.
  template <class T>
  T run(Task<T> task) {
    return loop_.run(std::move(task));
  }
  // For what only Linux has, such as Signals.
  Loop& loop() { return loop_; }

  Clock& clock() override { return loop_.clock(); }
  Network& network() override { return network_; }
  Disk& disk() override { return disk_; }
  Processes& processes() override { return processes_; }
  Memory& memory() override { return memory_; }
  Random& random() override { return random_; }
  const std::string& host_name() const override { return host_name_; }
  bool fault(CodePlace&) override { return false; }

 private:
  Loop loop_;
  RealNetwork network_{loop_};
  RealDisk disk_{loop_};
  RealProcesses processes_{loop_};
  RealMemory memory_{loop_};
  RealRandom random_;
  std::string host_name_;
};

}  // namespace tutti
