// The head's index of jobs in a SQLite file, asked and told on a thread of its own. A file that is
// of no use is moved away, and another begun.
#pragma once

#include <memory>
#include <string>

#include "cluster/job_index.h"
#include "cluster/sqlite_jobs.h"
#include "world/real/blocking_work.h"
#include "world/real/real_world.h"

namespace tutti::cli {

class HeadIndex final : public JobIndex {
 public:
  HeadIndex(RealWorld& world, std::string path);
  ~HeadIndex() override;

  Task<Result<uint64_t>> open(uint64_t log, uint64_t last_sequence) override;
  Task<Result<void>> put(uint64_t sequence, std::vector<cluster::JobInfo> jobs) override;
  Task<Result<std::vector<cluster::JobInfo>>> find(cluster::JobsRequest wanted,
                                                   uint64_t below) override;

 private:
  Task<Result<void>> try_open(SqliteJobsOptions options);
  Task<Result<void>> set_aside();

  RealWorld& world_;
  std::string path_;
  BlockingPool pool_;
  std::unique_ptr<SqliteJobs> jobs_;  // used by the pool's one thread
};

}  // namespace tutti::cli
