// Tells the index of jobs what the head's log says: all that changed, a few times a second, when it
// is durable. The head never waits for it. An index that fails is opened again, and told what it
// lacks; meanwhile jobs are found in the head's memory only.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <utility>

#include "cluster/event_log.h"
#include "cluster/head_state.h"
#include "cluster/job_index.h"
#include "world/alarm.h"

namespace tutti {

class IndexFeed {
 public:
  // All of them outlive it.
  IndexFeed(World& world, const HeadState& state, JobIndex& index);

  // The job has changed.
  void touch(uint64_t job);
  // The head, or the log it reads, is about to forget the job.
  void part(const HeadJob& job);
  // Until cancelled; begins when the log was read.
  Task<Result<void>> run(EventLog& log);
  // Waits, for a while, until the index has been told of everything up to the record. What it has
  // not been told then, it reads in the log, or never hears of when a snapshot has replaced that.
  Task<void> caught_up(uint64_t sequence);

  // Jobs that the head does not know any more, newest first.
  Task<Result<std::vector<cluster::JobInfo>>> find_forgotten(cluster::JobsRequest wanted,
                                                             uint64_t below);

 private:
  struct Parted {
    uint64_t number;    // in the order of their parting
    uint64_t sequence;  // of its last record
    cluster::JobInfo info;
  };
  Task<Result<void>> open(EventLog& log);
  Task<Result<void>> tell(EventLog& log);
  bool anything_to_tell() const { return !touched_.empty() || !parted_.empty(); }
  bool lags(uint64_t sequence) const;
  void lose(const Error& why);

  World& world_;
  const HeadState& state_;
  JobIndex& index_;
  Alarm alarm_;
  std::set<uint64_t> touched_;
  std::deque<Parted> parted_;
  uint64_t next_parted_ = 0;
  uint64_t told_ = 0;  // of everything up to this record
  bool telling_ = false;
  bool opening_ = true;  // for the first time
  std::optional<Error> lost_{std::in_place, Code::unavailable, "the index is being opened"};
};

}  // namespace tutti
