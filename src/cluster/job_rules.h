// The rules that every job keeps, wherever it was written: what check_job() and parse_job_file()
// have in common.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/job.pb.h"

namespace tutti {

struct JobMistake {
  std::optional<size_t> role;  // its place; nothing: about the job
  std::string
      section;       // with key: "health", "restarts", "escalate", "environment"; "": none of them
  std::string key;   // as in a job file; "": about all of the job or role
  std::string what;  // goes on after the name of the key: "must be …"
};

std::vector<JobMistake> find_job_mistakes(const job::Spec& spec);

// "…" without what a terminal would act upon, and of bounded length.
std::string quote_briefly(std::string_view text);

}  // namespace tutti
