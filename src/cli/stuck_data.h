// What the agents of a job's hosts tell of its processes, for `tutti stuck`.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster.h"
#include "fabric/stuck.h"

namespace tutti::cli {

struct StuckRequest {
  uint64_t job = 0;
  bool ended = false;    // not what runs now: what was kept of processes that ended
  bool history = false;  // with the last calls of each
};

// A process, as it was told and as it was understood.
struct StuckProcess {
  cluster::ProcessLook look;
  std::string host;
  RankSeen seen;
  std::string no_record;  // why its record could not be read
};

struct SeenRole {
  std::string name;
  uint32_t count = 0;                   // of processes, whether they are known or not
  std::vector<StuckProcess> processes;  // by rank
  StuckReport report;

  const StuckProcess* find(uint32_t rank) const;
};

struct SeenJob {
  cluster::JobInfo info;
  bool past = false;  // its processes are gone, or those before the present ones were asked for
  std::vector<SeenRole> roles;
  std::vector<std::pair<std::string, std::string>> silent;  // hosts that tell nothing, and why
};

Task<Result<SeenJob>> ask_stuck(Cluster& cluster, StuckRequest request);

// What was told, understood: what ask_stuck() does with the answers.
SeenJob understand(cluster::JobInfo info, std::vector<cluster::ProcessLook> looks, bool past);

}  // namespace tutti::cli
