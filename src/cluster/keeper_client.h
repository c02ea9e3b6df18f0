// Starts a keeper as a child of this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/keeper_stream.h"
#include "world/world.h"

namespace tutti {

// Where a keeper finds the stream to its controller.
constexpr int kKeeperControllerNumber = 3;

struct StartKeeperOptions {
  std::vector<std::string> command;      // the program and the verb that makes it a keeper
  std::vector<std::string> environment;  // of the keeper, not of its ranks
  std::string group;                     // as in KeeperOptions
  std::string linger;
  const Handle* errors = nullptr;  // its standard error; nullptr is /dev/null
};

struct StartedKeeper {
  std::unique_ptr<Process> process;
  std::unique_ptr<KeeperStream> stream;
};

// It is in a session of its own, out of reach of keys pressed on our terminal. Nothing kills it
// when we die: it sees the stream's end and cleans up, which a signal would keep it from.
Result<StartedKeeper> start_keeper(World& world, const StartKeeperOptions& options);

}  // namespace tutti
