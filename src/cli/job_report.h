// Makes of a job's events and its end what a gang of this machine would have reported.
#pragma once

#include <optional>
#include <vector>

#include "cluster/gang.h"
#include "cluster/head.pb.h"

namespace tutti::cli {

class JobTeller {
 public:
  JobTeller(GangListener& listener, uint32_t processes);

  bool knows(uint32_t process) const { return process < report_.ranks.size(); }
  // Told twice, it is heeded once; told by a host that has it no more, not at all.
  void on_event(const cluster::ProcessEvent& event);
  // We want the job to end.
  void begin_end(GangEnd end);
  void output_lost(Error why) { report_.error = std::move(why); }
  GangReport& report() { return report_; }

  // What became of the job, or why nobody knows.
  GangReport finish(const Result<cluster::JobInfo>& info, std::optional<GangEnd> ended_by_us);

 private:
  void tell_failure(const cluster::JobInfo& info);

  GangListener& listener_;
  GangReport report_;
  std::vector<uint64_t> epochs_;  // in which the processes were started
  uint64_t exits_ = 0;
};

}  // namespace tutti::cli
