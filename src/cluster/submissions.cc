#include "cluster/submissions.h"

#include <algorithm>

#include "base/queue_mark.h"

namespace tutti {
namespace {

// Of one message: some hundred bytes each.
constexpr size_t kMostAtOnce = 1024;
// Of answers that the client has not taken; beyond it no more requests are read.
constexpr size_t kMostUntold = 4 * kMostAtOnce;

}  // namespace

Submissions::Submissions(World& world, Head& head, std::string user, Stream& stream)
    : head_(head),
      user_(std::move(user)),
      stream_(stream),
      alarm_(world.clock()),
      room_(world.clock()) {}

Submissions::~Submissions() {
  for (const auto& [job, places] : watched_) head_.unwatch(job, *this);
}

Task<Result<void>> Submissions::run() {
  Scope strands;
  strands.spawn(take_all());
  strands.spawn(tell_all());
  co_return co_await strands.join();
}

Task<Result<void>> Submissions::take_all() {
  while (true) {
    auto request = co_await stream_.recv();
    if (!request) co_return fail(std::move(request).error());
    if (!*request) break;
    take(std::move(**request));
    alarm_.ring();
    while (answers_.size() >= kMostUntold) {
      auto woken = co_await room_.until(kNever);
      if (!woken) co_return woken;
    }
  }
  all_taken_ = true;
  alarm_.ring();
  co_return {};
}

void Submissions::take(cluster::SubmitRequest request) {
  cluster::Submitted& answer = answers_.emplace_back();
  TUTTI_QUEUE("submissions: answers that wait for a client", answers_.size(), kMostUntold);
  answer.set_place(taken_++);
  const bool tell_end = request.tell_end();
  auto id = head_.take(std::move(request), user_);
  posted_ = head_.posted();
  if (!id) {
    answer.set_code(static_cast<uint32_t>(id.error().code()));
    answer.set_refused(id.error().text());
    return;
  }
  answer.set_job(*id);
  if (!tell_end) return;
  std::vector<uint64_t>& places = watched_[*id];
  if (places.empty()) head_.watch(*id, *this);
  places.push_back(answer.place());
  on_job_changed(*id);  // one that was submitted before may be over by now
}

void Submissions::on_job_changed(uint64_t job) {
  if (!head_.has_ended(job)) return;
  over_.push_back(job);
  alarm_.ring();
}

Task<Result<void>> Submissions::tell_all() {
  while (!all_taken_ || !watched_.empty() || anything_to_tell()) {
    if (!anything_to_tell()) {
      auto woken = co_await alarm_.until(kNever);
      if (!woken) co_return woken;
      co_await yield();  // what happened at the same time is told together
      continue;
    }
    auto answers = next_answers();
    if (!answers) co_return fail(std::move(answers).error());
    const uint64_t posted = posted_;
    auto durable = co_await head_.durable(posted);
    if (!durable) co_return durable;
    auto sent = co_await stream_.send(*answers);
    if (!sent) co_return fail(std::move(sent).error());
    room_.ring();
  }
  co_return {};
}

// A job's number goes before its end.
Result<cluster::SubmittedMany> Submissions::next_answers() {
  cluster::SubmittedMany many;
  const size_t count = std::min(answers_.size(), kMostAtOnce);
  for (size_t i = 0; i < count; ++i) *many.add_jobs() = std::move(answers_[i]);
  answers_.erase(answers_.begin(), answers_.begin() + static_cast<ptrdiff_t>(count));
  if (!answers_.empty()) return many;
  while (!over_.empty() && static_cast<size_t>(many.jobs_size()) < kMostAtOnce) {
    const uint64_t job = over_.back();
    over_.pop_back();
    const auto watched = watched_.find(job);
    if (watched == watched_.end()) continue;
    TRY(cluster::JobInfo info, head_.info(job));
    head_.unwatch(job, *this);
    for (const uint64_t place : watched->second) {
      cluster::Submitted& over = *many.add_jobs();
      over.set_place(place);
      over.set_job(job);
      *over.mutable_over() = info;
    }
    watched_.erase(watched);
  }
  return many;
}

}  // namespace tutti
