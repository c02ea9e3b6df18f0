// What the environment of a rank says of its place: memory shared with the other ranks of its host,
// and who it is among them. Outside of a job it is alone, in memory of its own.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "world/disk.h"

namespace tutti {

struct RankPlace {
  std::unique_ptr<Mapping> heap;     // the whole arena (src/fabric/heap.h)
  std::unique_ptr<Mapping> control;  // all control pages of the host
  uint32_t slot = 0;                 // its page, and its part of the heap
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::string role;
  bool alone = false;  // there is no job
  // Ranks of the gang are on other hosts: this is how the agent knows us.
  bool elsewhere = false;
  std::string exchange;  // its socket
  uint64_t job = 0;
  uint64_t life = 0;  // the epoch in which we were started
  uint32_t process = 0;
  std::string transport = "tcp";  // between hosts, as TUTTI_FABRIC_TRANSPORT says
};

Result<RankPlace> find_rank_place();

// What TUTTI_FABRIC_TUNE says of how the fabric is to be tuned; empty when it is not set.
std::string fabric_tune_variable();

}  // namespace tutti
