// Turns one Spawn message into running ranks: all of them, or none and the reason.
#pragma once

#include <memory>
#include <vector>

#include "cluster/keeper.pb.h"
#include "world/world.h"

namespace tutti {

// A rank as its keeper holds it, from its start until its exit is acknowledged.
struct HeldRank {
  uint32_t rank = 0;
  std::unique_ptr<Process> process;
  std::vector<Handle> outputs;  // our ends: output and error pipes, or one terminal, or nothing
  Instant started{};
  int last_signal_sent = 0;
  bool running = true;
};

// Handles are those attached to the message.
Result<std::vector<HeldRank>> start_ranks(World& world, const keeper::Spawn& spawn,
                                          std::span<const Handle> handles, ProcessGroup* group);

}  // namespace tutti
