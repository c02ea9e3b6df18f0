// Jobs in a SQLite file: the tables of the index (job_index.h). Calls block, and come from one
// thread at a time.
//
// Nothing is lost with the file but the history of jobs that the head has forgotten, so it is
// synced only when SQLite must to keep it whole. A file that is broken, of another log or of
// another version is Code::corrupt: move it away and begin anew.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/head.pb.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tutti {

struct SqliteJobsOptions {
  std::string path;
  uint64_t log = 0;            // the identity of the head's log
  uint64_t last_sequence = 0;  // of that log
  uint64_t most = 1'000'000;   // jobs; some hundred megabytes
};

class SqliteJobs {
 public:
  // Looks through the whole file for damage.
  static Result<std::unique_ptr<SqliteJobs>> open(const SqliteJobsOptions& options);
  ~SqliteJobs();
  SqliteJobs(const SqliteJobs&) = delete;
  SqliteJobs& operator=(const SqliteJobs&) = delete;

  // The record of the log up to which it has been told of everything.
  uint64_t sequence() const { return sequence_; }
  // In one transaction. Beyond the most it keeps, the jobs with the lowest numbers go.
  Result<void> put(uint64_t sequence, const std::vector<cluster::JobInfo>& jobs);
  // Newest first, with numbers below this one.
  Result<std::vector<cluster::JobInfo>> find(const cluster::JobsRequest& wanted, uint64_t below);

 private:
  class Statement;
  explicit SqliteJobs(uint64_t most) : most_(most) {}
  Result<void> run(const char* sql);
  Result<void> prepare_file(const SqliteJobsOptions& options);
  Result<void> make_tables(uint64_t log);
  Result<void> check_file(const SqliteJobsOptions& options);
  Result<int64_t> number(const char* sql);
  Result<void> put_all(uint64_t sequence, const std::vector<cluster::JobInfo>& jobs);
  std::unexpected<Error> failure(std::string_view doing) const;

  sqlite3* database_ = nullptr;
  uint64_t sequence_ = 0;
  uint64_t most_;
};

}  // namespace tutti
