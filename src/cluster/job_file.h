// Jobs as people write them: TOML, described in docs/jobs.md.
#pragma once

#include <string_view>

#include "base/result.h"
#include "cluster/job.pb.h"

namespace tutti {

// The job with every default filled in. The error names all mistakes, each with file and line.
Result<job::Spec> parse_job_file(std::string_view text, std::string_view file_name);

// Whether a job from anywhere keeps the same rules; the error names all mistakes, each with its
// role. Who runs the job is not looked at: that is the head's to set.
Result<void> check_job(const job::Spec& spec);

}  // namespace tutti
