#include "cluster/index_feed.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/queue_mark.h"

namespace tutti {
namespace {

// What happens meanwhile is told together.
constexpr Duration kGathering = 100ms;
// Of one telling: a job has some hundred bytes.
constexpr size_t kMostAtOnce = 10'000;
// Of jobs that were forgotten while the index could not be told; then the oldest are lost to it.
constexpr size_t kMostParted = 100'000;
// Nobody waits for it longer.
constexpr Duration kCatchingUp = 2s;
// Between tries to open one that failed.
constexpr Duration kFirstPause = 1s;
constexpr Duration kLongestPause = 1min;

cluster::JobInfo told_of(const HeadJob& job) {
  cluster::JobInfo info = brief_info(job);
  add_roles(job, info);
  return info;
}

}  // namespace

IndexFeed::IndexFeed(World& world, const HeadState& state, JobIndex& index)
    : world_(world), state_(state), index_(index), alarm_(world.clock()) {}

void IndexFeed::touch(uint64_t job) {
  if (job == 0) return;
  if (touched_.empty()) alarm_.ring();
  touched_.insert(job);
}

void IndexFeed::part(const HeadJob& job) {
  if (parted_.size() == kMostParted) parted_.pop_front();
  parted_.push_back({next_parted_++, job.sequence, told_of(job)});
  TUTTI_QUEUE("index feed: jobs that wait for the index", parted_.size(), kMostParted);
}

Task<Result<void>> IndexFeed::run(EventLog& log) {
  Duration pause = kFirstPause;
  while (true) {
    auto told = co_await open(log);
    opening_ = false;
    while (told) {
      pause = kFirstPause;
      if (!anything_to_tell()) told = co_await alarm_.until(kNever);
      if (told) told = co_await world_.clock().sleep(kGathering);
      if (told && lost_) told = fail(*lost_);
      telling_ = true;
      if (told && anything_to_tell()) told = co_await tell(log);
      telling_ = false;
    }
    if (told.error().code() == Code::cancelled) co_return told;
    lose(told.error());
    auto slept = co_await world_.clock().sleep(pause);
    if (!slept) co_return slept;
    pause = std::min(2 * pause, kLongestPause);
  }
}

// All that has changed since what it knows.
Task<Result<void>> IndexFeed::open(EventLog& log) {
  auto known = co_await index_.open(log.identity(), log.last_sequence());
  if (!known) co_return fail(std::move(known).error());
  for (const auto& [id, job] : state_.jobs)
    if (job->sequence > *known) touched_.insert(id);
  std::erase_if(parted_, [&](const Parted& parted) { return parted.sequence <= *known; });
  told_ = *known;
  lost_.reset();
  co_return {};
}

// What is not durable yet may be undone, and its number given to another record.
Task<Result<void>> IndexFeed::tell(EventLog& log) {
  std::vector<cluster::JobInfo> jobs;
  uint64_t parted = 0;
  for (auto job = parted_.begin(); job != parted_.end() && jobs.size() < kMostAtOnce; ++job) {
    jobs.push_back(job->info);
    parted = job->number + 1;
  }
  auto last = touched_.begin();
  for (; last != touched_.end() && jobs.size() < kMostAtOnce; ++last)
    if (const HeadJob* job = state_.find(*last)) jobs.push_back(told_of(*job));
  // In parts, it has been told of everything only with the last of them.
  const bool all = last == touched_.end() && (parted_.empty() || parted == next_parted_);
  touched_.erase(touched_.begin(), last);
  const uint64_t sequence = log.last_sequence();
  auto durable = co_await log.durable(sequence);
  if (!durable) co_return durable;
  auto put = co_await index_.put(all ? sequence : told_, std::move(jobs));
  if (!put) co_return put;
  std::erase_if(parted_, [&](const Parted& job) { return job.number < parted; });
  if (all) told_ = sequence;
  co_return {};
}

bool IndexFeed::lags(uint64_t sequence) const {
  if (opening_) return true;
  return !lost_ && told_ < sequence && (telling_ || anything_to_tell());
}

Task<void> IndexFeed::caught_up(uint64_t sequence) {
  const Instant patience = world_.clock().now() + kCatchingUp;
  while (lags(sequence) && world_.clock().now() < patience) {
    auto slept = co_await world_.clock().sleep(kGathering / 2);
    if (!slept) co_return;
  }
}

void IndexFeed::lose(const Error& why) {
  TUTTI_LOG(warn, "the index of jobs is not there", {{"why", why.text()}});
  lost_ = why;
}

// What the index is yet to be told counts more than what it says.
Task<Result<std::vector<cluster::JobInfo>>> IndexFeed::find_forgotten(cluster::JobsRequest wanted,
                                                                      uint64_t below) {
  std::map<uint64_t, cluster::JobInfo> found;
  std::set<uint64_t> untold;
  for (const Parted& parted : parted_) {
    const cluster::JobInfo& info = parted.info;
    untold.insert(info.job());
    const JobMarks marks{info.state(), info.user(), info.name(), info.submitted_unix_ns()};
    if (info.job() < below && fits(wanted, marks)) found[info.job()] = info;
  }
  const size_t enough = found.size() + wanted.most();
  while (found.size() < enough) {
    if (lost_) co_return fail(*lost_);
    cluster::JobsRequest asked = wanted;
    auto page = co_await index_.find(std::move(asked), below);
    if (!page && page.error().code() == Code::corrupt) {
      lost_ = page.error();
      alarm_.ring();  // to open it again
    }
    if (!page) co_return fail(std::move(page).error());
    for (cluster::JobInfo& info : *page) {
      below = info.job();
      const bool news = state_.find(below) == nullptr && !untold.contains(below);
      if (news) found[below] = std::move(info);
    }
    if (page->size() < wanted.most()) break;
  }
  std::vector<cluster::JobInfo> list;
  for (auto job = found.rbegin(); job != found.rend() && list.size() < wanted.most(); ++job)
    list.push_back(std::move(job->second));
  co_return list;
}

}  // namespace tutti
