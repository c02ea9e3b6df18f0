#include "cluster/head_snapshot.h"

#include <algorithm>

namespace tutti {
namespace {

// So few that nobody notices when they are taken in one go.
constexpr size_t kFewJobs = 32;

void add_kept(const HeadJob& job, cluster::KeptJob& kept) {
  *kept.mutable_submitted() = submitted_of(job);
  if (job.placed) *kept.mutable_placed() = placed_of(job);
  if (job.state != cluster::QUEUED) *kept.mutable_changed() = changed_of(job);
  if (job.end) *kept.mutable_end() = *job.end;
}

std::unique_ptr<HeadJob> job_from(uint64_t sequence, const cluster::KeptJob& kept) {
  auto job = tutti::job_from(kept.submitted());
  job->sequence = sequence;
  if (kept.has_placed()) set_placed(*job, kept.placed());
  job->given_up = set_from(kept.placed().given_up()).value_or(RangeSet());
  if (kept.has_changed()) set_changed(*job, kept.changed());
  job->ended_ns = kept.changed().at_unix_ns();
  if (kept.has_end()) job->end = kept.end();
  return job;
}

}  // namespace

void HeadSnapshotTaker::note(uint64_t job) {
  if (job < next_) stale_.insert(job);
}

void HeadSnapshotTaker::take(uint64_t id) {
  cluster::HeadSnapshot taken;
  if (const HeadJob* job = state_.find(id))
    add_kept(*job, *taken.add_jobs());
  else
    taken.add_gone(id);
  taken.AppendToString(&pieces_.back());
}

bool HeadSnapshotTaker::take_some(size_t bytes) {
  std::string& piece = pieces_.emplace_back();
  piece.reserve(bytes + bytes / 8);
  auto job = state_.jobs.lower_bound(next_);
  for (; job != state_.jobs.end() && piece.size() < bytes; ++job) {
    take(job->first);
    next_ = job->first + 1;
  }
  while (!stale_.empty() && piece.size() < bytes) take(stale_.extract(stale_.begin()).value());
  return job == state_.jobs.end() && stale_.size() <= kFewJobs;
}

std::vector<std::string> HeadSnapshotTaker::finish() {
  pieces_.emplace_back();
  for (auto job = state_.jobs.lower_bound(next_); job != state_.jobs.end(); ++job) take(job->first);
  for (const uint64_t job : stale_) take(job);
  cluster::HeadSnapshot rest;
  for (const cluster::HostAbout& about : state_.hosts)
    if (!about.name().empty()) *rest.add_hosts() = about;
  rest.set_numbers(static_cast<uint32_t>(state_.hosts.size()));
  rest.set_next_job(state_.next_job);
  const std::vector<uint64_t> queue = state_.queue.all();
  rest.mutable_queue()->Assign(queue.begin(), queue.end());
  rest.mutable_over()->Assign(state_.over.begin(), state_.over.end());
  rest.AppendToString(&pieces_.back());
  return std::move(pieces_);
}

Result<void> restore_snapshot(uint64_t sequence, std::string_view bytes, HeadState& state) {
  cluster::HeadSnapshot snapshot;
  if (!snapshot.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return fail(Code::corrupt, "the snapshot of the head's log does not parse");
  for (const cluster::HostAbout& about : snapshot.hosts()) state.know_host(about);
  if (state.hosts.size() < snapshot.numbers()) state.hosts.resize(snapshot.numbers());
  for (const cluster::KeptJob& kept : snapshot.jobs())
    state.jobs[kept.submitted().job()] = job_from(sequence, kept);
  for (const uint64_t job : snapshot.gone()) state.jobs.erase(job);
  for (const auto& [id, job] : state.jobs) {
    if (!job->key.empty()) state.keys[job->key] = id;
    state.placement.take(job->spec, job->layout, HeadState::held_by(*job));
    state.set_given_up(*job, std::exchange(job->given_up, {}));
  }
  state.next_job = snapshot.next_job();
  for (const uint64_t id : snapshot.queue())
    if (const HeadJob* job = state.find(id)) state.queue.push(id, job->spec.account());
  state.over.assign(snapshot.over().begin(), snapshot.over().end());
  return {};
}

}  // namespace tutti
