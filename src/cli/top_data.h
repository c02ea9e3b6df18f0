// What `tutti top` knows of the cluster: one look after the other.
//
// A look asks the head for its jobs and its sums, which cost it nothing for hosts that are idle,
// and the agents of those hosts that are in view for their processes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/range_set.h"
#include "cli/cluster.h"

namespace tutti::cli {

struct SeenProcess {
  cluster::ProcessInfo info;
  double cpu_percent = 0;  // of one core: since the look before, or since it began
};

// What one look gave.
struct Look {
  cluster::StatusReply status;
  std::vector<cluster::JobInfo> jobs;
  std::optional<cluster::JobInfo> job;                 // the one in view, with roles and hosts
  std::map<uint32_t, std::vector<SeenProcess>> hosts;  // its processes, where an agent answered
  RangeSet silent;                                     // hosts in view whose agents did not
  int64_t unix_ns = 0;
};

// What to look at.
struct Wish {
  bool ended_jobs = false;
  uint64_t job = 0;               // 0: no job in particular
  std::optional<RangeSet> hosts;  // of the job; nothing: all, if they are not too many
};

// More are not asked at once: nobody reads so many rows, and each is a connection.
constexpr size_t kMostAgentsAsked = 64;

// Processor time into percent, from one look to the next.
class CpuMeter {
 public:
  double percent(const cluster::HostInfo& host, const cluster::ProcessInfo& process);
  // What was not seen since the last of these is forgotten.
  void end_look();

 private:
  struct Seen {
    int64_t cpu_ns = 0;
    int64_t at_ns = 0;
    double percent = 0;
    bool now = false;
  };
  // By host, job, process and its pid.
  std::map<std::tuple<uint32_t, uint64_t, uint32_t, int64_t>, Seen> seen_;
};

class TopData {
 public:
  explicit TopData(Cluster& cluster) : cluster_(cluster) {}

  Task<Result<Look>> look(Wish wish);
  Task<void> close();

 private:
  Task<void> ask_agents(const Wish& wish, Look& look);
  Task<void> ask_agent(cluster::HostAbout host, uint64_t job, Look& look);

  Cluster& cluster_;
  CpuMeter meter_;
  std::map<uint32_t, std::unique_ptr<ApiCaller>> agents_;  // by node; those in view
  bool certified_ = false;
};

}  // namespace tutti::cli
