// Jobs as people and tools read them.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "cluster/head.pb.h"

namespace tutti::cli {

// "running", "killed"; one word each.
std::string_view state_name(cluster::JobState state);
Json status_json(const cluster::StatusReply& status, const std::string& head);
Json job_json(const cluster::JobInfo& info);
Json process_json(const cluster::ProcessInfo& process, const std::string& host);

}  // namespace tutti::cli
