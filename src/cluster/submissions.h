// The jobs that one client submits over one stream: takes them as they come, and tells of each that
// it is kept, and how it ended if that was asked for. What happened at the same time is made
// durable and told together, so that a thousand jobs cost a few writes of the log, not a thousand.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cluster/head.h"
#include "wire/call_stream.h"

namespace tutti {

class Submissions final : private JobWatcher {
 public:
  using Stream = wire::ServerStream<cluster::SubmitRequest, cluster::SubmittedMany>;

  // Both outlive it.
  Submissions(World& world, Head& head, std::string user, Stream& stream);
  ~Submissions();

  // Until the client submits no more and everything was told.
  Task<Result<void>> run();

 private:
  Task<Result<void>> take_all();
  void take(cluster::SubmitRequest request);
  Task<Result<void>> tell_all();
  void on_job_changed(uint64_t job) override;
  bool anything_to_tell() const { return !answers_.empty() || !over_.empty(); }
  Result<cluster::SubmittedMany> next_answers();

  Head& head_;
  std::string user_;
  Stream& stream_;
  Alarm alarm_;
  Alarm room_;  // rung when answers were told
  uint64_t taken_ = 0;
  uint64_t posted_ = 0;  // what must be durable before answers are told
  bool all_taken_ = false;
  std::vector<cluster::Submitted> answers_;            // taken or refused, and not told yet
  std::map<uint64_t, std::vector<uint64_t>> watched_;  // places, by job
  std::vector<uint64_t> over_;                         // of these, jobs that have ended
};

}  // namespace tutti
