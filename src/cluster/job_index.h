// An index of jobs, for questions about those that the head has forgotten. It is derived from the
// head's log: it may be behind, or lost, and is brought up to date again. Simulations have none.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/head.pb.h"
#include "world/task.h"

namespace tutti {

class JobIndex {
 public:
  virtual ~JobIndex() = default;

  // Opens what there is for this log, which ends with that record, or begins anew. Gives the record
  // up to which it has been told of everything; 0 when it is new.
  virtual Task<Result<uint64_t>> open(uint64_t log, uint64_t last_sequence) = 0;
  // These jobs are so now; with that it has been told of everything up to the record. After an
  // error it is opened again.
  virtual Task<Result<void>> put(uint64_t sequence, std::vector<cluster::JobInfo> jobs) = 0;
  // Jobs that fit, newest first, with numbers below this one.
  virtual Task<Result<std::vector<cluster::JobInfo>>> find(cluster::JobsRequest wanted,
                                                           uint64_t below) = 0;
};

// What a request can ask of a job.
struct JobMarks {
  cluster::JobState state;
  std::string_view user;
  std::string_view name;
  int64_t submitted_ns;
};
bool fits(const cluster::JobsRequest& request, const JobMarks& job);

// * is any text, ? any character; all else is itself.
bool name_fits(std::string_view pattern, std::string_view name);

}  // namespace tutti
