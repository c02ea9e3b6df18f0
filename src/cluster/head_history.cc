// What the head says of jobs that it has forgotten: what the index knows.
#include <map>

#include "cluster/head.h"

namespace tutti {

std::unexpected<Error> no_such_job(uint64_t job) {
  return fail(Code::not_found, "there is no job {}; see `tutti jobs --all`", job);
}

Task<cluster::JobsReply> Head::all_jobs(cluster::JobsRequest request) {
  cluster::JobsReply reply;
  for (cluster::JobInfo& info : jobs(request)) *reply.add_jobs() = std::move(info);
  if (!request.all() || !feed_) co_return reply;
  // Not all that were forgotten are older than all that were not.
  auto forgotten = co_await feed_->find_forgotten(request, state_.next_job);
  if (!forgotten) {
    reply.set_missing(forgotten.error().text());
    co_return reply;
  }
  // One that was forgotten while we asked is in both.
  std::map<uint64_t, cluster::JobInfo> all;
  for (cluster::JobInfo& info : *forgotten) all[info.job()] = std::move(info);
  for (cluster::JobInfo& info : *reply.mutable_jobs()) all[info.job()] = std::move(info);
  reply.clear_jobs();
  auto job = all.rbegin();
  for (uint32_t i = 0; job != all.rend() && i < request.most(); ++job, ++i)
    *reply.add_jobs() = std::move(job->second);
  co_return reply;
}

Task<Result<cluster::JobInfo>> Head::any_info(uint64_t job) {
  auto kept = co_await end_kept(job);
  if (!kept) co_return fail(kept.error());
  if (state_.find(job) != nullptr || !feed_ || job >= state_.next_job) co_return info(job);
  cluster::JobsRequest request;
  request.set_all(true);
  request.set_most(1);
  auto found = co_await feed_->find_forgotten(std::move(request), job + 1);
  if (!found) co_return fail(found.error().context(fmt::format("look for job {}", job)));
  if (found->empty() || found->front().job() != job) co_return no_such_job(job);
  co_return std::move(found->front());
}

}  // namespace tutti
