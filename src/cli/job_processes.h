// Which processes of a job people mean, and which signals.
#pragma once

#include <string_view>

#include "base/range_set.h"
#include "cluster/head.pb.h"

namespace tutti::cli {

// "worker/0,3-5" are ranks of a role, "worker" is all of it, "0,3-5" are ranks of a job that has
// one role only. Gives numbers of processes. The job as the head tells of one, with its roles.
Result<RangeSet> parse_processes(std::string_view text, const cluster::JobInfo& job);

// SIGUSR1, USR1 or 10.
Result<int> parse_signal(std::string_view text);

// "worker 3", or "rank 3" where there is one role; the number when it is none of the job.
std::string process_name(uint32_t process, const cluster::JobInfo& job);

}  // namespace tutti::cli
