// What the head remembers.
#include "base/log.h"
#include "cluster/head.h"

namespace tutti {
namespace {

bool is_over(cluster::JobState state) { return state >= cluster::SUCCEEDED; }

}  // namespace

Result<void> Head::on_snapshot(uint64_t, std::string_view state) {
  cluster::HeadSnapshot snapshot;
  if (!snapshot.ParseFromArray(state.data(), static_cast<int>(state.size())))
    return fail(Code::corrupt, "the snapshot of the head's log does not parse");
  for (const cluster::HeadRecord& record : snapshot.records()) replay(record);
  next_job_ = std::max(next_job_, snapshot.next_job());
  return {};
}

Result<void> Head::on_record(uint64_t sequence, std::string_view bytes) {
  cluster::HeadRecord record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return fail(Code::corrupt, "record {} of the head's log does not parse", sequence);
  replay(record);
  return {};
}

void Head::replay(const cluster::HeadRecord& record) {
  if (record.has_host()) {
    const cluster::HostAbout& about = record.host().about();
    if (about.node() >= hosts_.size()) hosts_.resize(about.node() + 1);
    hosts_[about.node()].about = about;
    numbers_[about.name()] = about.node();
    placement_.set_host(about.node(), about.slots());
  } else if (record.has_submitted()) {
    const cluster::JobSubmitted& submitted = record.submitted();
    auto job = std::make_unique<Job>();
    job->id = submitted.job();
    job->spec = submitted.spec();
    job->user = submitted.user();
    job->key = submitted.key();
    job->submitted_ns = submitted.at_unix_ns();
    next_job_ = std::max(next_job_, job->id + 1);
    if (!job->key.empty()) keys_[job->key] = job->id;
    queue_.push_back(job->id);
    jobs_[submitted.job()] = std::move(job);
  } else if (record.has_placed()) {
    Job* job = find(record.placed().job());
    if (job == nullptr) return;
    placement_.give_back(job->spec, job->layout, held_by(*job));
    job->placed = true;
    job->term = record.placed().term();
    job->coordinator = record.placed().coordinator();
    job->layout = record.placed().layout();
    job->fresh = record.placed().fresh();
    if (job->state == cluster::QUEUED) job->state = cluster::STARTING;
    placement_.take(job->spec, job->layout, held_by(*job));
  } else if (record.has_changed()) {
    Job* job = find(record.changed().job());
    if (job == nullptr) return;
    const cluster::JobChanged& changed = record.changed();
    const bool ends = is_over(changed.state()) && !is_over(job->state);
    const RangeSet before = held_by(*job);
    job->state = changed.state();
    job->epoch = changed.epoch();
    job->restarts = changed.restarts();
    job->why = changed.why();
    job->culprit = changed.culprit();
    job->leftovers = changed.leftovers();
    settle_room(*job, before);
    if (!ends) return;
    job->ended_ns = changed.at_unix_ns();
    over_.push_back(job->id);
  } else if (record.forgotten() != 0) {
    jobs_.erase(record.forgotten());
    std::erase(over_, record.forgotten());
  }
}

}  // namespace tutti
