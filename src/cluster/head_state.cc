#include "cluster/head_state.h"

#include <algorithm>

#include "cluster/report_fold.h"

namespace tutti {
namespace {

void drop_environments(job::Spec& spec) {
  spec.clear_environment();
  for (job::Role& role : *spec.mutable_roles()) role.clear_environment();
}

}  // namespace

HeadJob* HeadState::find(uint64_t job) {
  const auto found = jobs.find(job);
  return found == jobs.end() ? nullptr : found->second.get();
}

const HeadJob* HeadState::find(uint64_t job) const {
  const auto found = jobs.find(job);
  return found == jobs.end() ? nullptr : found->second.get();
}

void HeadState::replay(uint64_t sequence, const cluster::HeadRecord& record,
                       const Forgetting& forgetting) {
  if (record.has_host()) return know_host(record.host().about());
  if (!record.host_forgotten().empty()) return forget_host(record.host_forgotten());
  if (record.has_submitted()) {
    auto job = job_from(record.submitted());
    job->sequence = sequence;
    return add(std::move(job));
  }
  if (record.forgotten() != 0) {
    if (const HeadJob* job = find(record.forgotten()); job != nullptr && forgetting)
      forgetting(*job);
    return forget(record.forgotten());
  }
  const uint64_t id = record.has_placed()    ? record.placed().job()
                      : record.has_changed() ? record.changed().job()
                                             : record.end().job();
  HeadJob* job = find(id);
  if (job == nullptr) return;
  job->sequence = sequence;
  if (record.has_end()) job->end = record.end();
  if (record.has_placed()) {
    placement.give_back(job->spec, job->layout, held_by(*job));
    set_placed(*job, record.placed());
    placement.take(job->spec, job->layout, held_by(*job));
    set_given_up(*job, set_from(record.placed().given_up()).value_or(RangeSet()));
  }
  if (!record.has_changed()) return;
  const bool ends = is_over(record.changed().state()) && !is_over(job->state);
  const RangeSet before = held_by(*job);
  set_changed(*job, record.changed());
  settle_room(*job, before);
  set_given_up(*job, set_from(record.changed().given_up()).value_or(RangeSet()));
  if (ends) end(*job, record.changed().at_unix_ns());
}

void HeadState::know_host(const cluster::HostAbout& about) {
  if (about.node() >= hosts.size()) hosts.resize(about.node() + 1);
  hosts[about.node()] = about;
  numbers[about.name()] = about.node();
  placement.set_host(about.node(), about.slots(), about.only_for());
}

// Its number stays its own: should it come back, it is known again.
void HeadState::forget_host(const std::string& name) {
  const auto found = numbers.find(name);
  if (found == numbers.end()) return;
  if (const auto jobs_there = given_up.find(found->second); jobs_there != given_up.end())
    for (const uint64_t id : std::set(jobs_there->second))
      if (HeadJob* job = find(id)) set_given_up(*job, job->given_up.minus(RangeSet(found->second)));
  hosts[found->second] = cluster::HostAbout();
  placement.set_host(found->second, 0);
  numbers.erase(found);
}

void HeadState::add(std::unique_ptr<HeadJob> job) {
  const uint64_t id = job->id;
  next_job = std::max(next_job, id + 1);
  if (!job->key.empty()) keys[job->key] = id;
  queue.push(id, job->spec.account());
  jobs[id] = std::move(job);
}

// A hundred thousand jobs that are over would be mostly what they found in their environment.
void HeadState::end(HeadJob& job, int64_t at_ns) {
  job.ended_ns = at_ns;
  drop_environments(job.spec);
  over.push_back(job.id);
}

void HeadState::forget(uint64_t id) {
  if (HeadJob* job = find(id)) {
    if (!job->key.empty()) keys.erase(job->key);
    set_given_up(*job, {});
  }
  jobs.erase(id);
  if (!over.empty() && over.front() == id) return over.pop_front();
  std::erase(over, id);
}

RangeSet HeadState::held_by(const HeadJob& job) {
  if (!job.placed) return {};
  const RangeSet hosts = nodes_of(job.layout);
  return is_over(job.state) ? hosts.common(hosts_of(job.leftovers)) : hosts;
}

void HeadState::settle_room(const HeadJob& job, const RangeSet& before) {
  const RangeSet now = held_by(job);
  placement.give_back(job.spec, job.layout, before.minus(now));
  placement.take(job.spec, job.layout, now.minus(before));
}

void HeadState::set_given_up(HeadJob& job, RangeSet hosts) {
  const RangeSet before = std::exchange(job.given_up, std::move(hosts));
  for (const NodeId node : job.given_up.minus(before).members()) {
    given_up[node].insert(job.id);
    placement.set_open(node, false);
  }
  for (const NodeId node : before.minus(job.given_up).members()) {
    std::set<uint64_t>& jobs_there = given_up[node];
    jobs_there.erase(job.id);
    if (!jobs_there.empty()) continue;
    given_up.erase(node);
    placement.set_open(node, true);
  }
}

cluster::JobSubmitted submitted_of(const HeadJob& job) {
  cluster::JobSubmitted submitted;
  submitted.set_job(job.id);
  *submitted.mutable_spec() = job.spec;
  submitted.set_user(job.user);
  submitted.set_at_unix_ns(job.submitted_ns);
  submitted.set_key(job.key);
  return submitted;
}

cluster::JobPlaced placed_of(const HeadJob& job) {
  cluster::JobPlaced placed;
  placed.set_job(job.id);
  placed.set_term(job.term);
  placed.set_coordinator(job.coordinator);
  *placed.mutable_layout() = job.layout;
  placed.set_fresh(job.fresh);
  placed.set_started_unix_ns(job.started_ns);
  set_pairs(job.given_up, placed.mutable_given_up());
  return placed;
}

cluster::JobChanged changed_of(const HeadJob& job) {
  cluster::JobChanged changed;
  changed.set_job(job.id);
  changed.set_state(job.state);
  changed.set_epoch(job.epoch);
  changed.set_restarts(job.restarts);
  *changed.mutable_taken() = job.taken;
  changed.set_why(job.why);
  *changed.mutable_culprit() = job.culprit;
  *changed.mutable_leftovers() = job.leftovers;
  changed.set_at_unix_ns(job.ended_ns);
  set_pairs(job.given_up, changed.mutable_given_up());
  return changed;
}

std::unique_ptr<HeadJob> job_from(const cluster::JobSubmitted& submitted) {
  auto job = std::make_unique<HeadJob>();
  job->id = submitted.job();
  job->spec = submitted.spec();
  job->user = submitted.user();
  job->key = submitted.key();
  job->submitted_ns = submitted.at_unix_ns();
  return job;
}

void set_placed(HeadJob& job, const cluster::JobPlaced& placed) {
  job.placed = true;
  job.term = placed.term();
  job.coordinator = placed.coordinator();
  job.layout = placed.layout();
  job.fresh = placed.fresh();
  job.started_ns = placed.started_unix_ns();
  if (job.state == cluster::QUEUED) job.state = cluster::STARTING;
}

void set_changed(HeadJob& job, const cluster::JobChanged& changed) {
  job.state = changed.state();
  job.epoch = changed.epoch();
  job.restarts = changed.restarts();
  job.taken = changed.taken();
  job.why = changed.why();
  job.culprit = changed.culprit();
  job.leftovers = changed.leftovers();
}

cluster::JobInfo brief_info(const HeadJob& job) {
  cluster::JobInfo info;
  info.set_job(job.id);
  info.set_name(job.spec.name());
  info.set_user(job.user);
  info.set_state(job.state);
  const bool untried = job.state == cluster::QUEUED && job.why.empty();
  info.set_why(untried ? "others came before it" : job.why);
  info.set_submitted_unix_ns(job.submitted_ns);
  info.set_started_unix_ns(job.started_ns);
  info.set_ended_unix_ns(job.ended_ns);
  info.set_epoch(job.epoch);
  info.set_restarts(job.restarts);
  info.set_processes(JobNumbers(job.spec).size());
  *info.mutable_layout() = job.layout;
  if (job.culprit.has_exit()) *info.mutable_culprit() = job.culprit;
  *info.mutable_leftovers() = job.leftovers;
  info.set_coordinator(job.coordinator);
  info.set_timeout_ns(job.spec.timeout_ns());
  info.set_grace_ns(job.spec.grace_ns());
  if (job.end) info.set_ended_by(job.end->by());
  if (job.end && job.end->preempted()) info.set_notice_ns(job.spec.notice_ns());
  return info;
}

void add_roles(const HeadJob& job, cluster::JobInfo& info) {
  const JobNumbers numbers(job.spec);
  for (size_t index = 0; index < numbers.roles(); ++index) {
    const job::Role& role = job.spec.roles(static_cast<int>(index));
    cluster::RoleInfo& told = *info.add_roles();
    told.set_name(role.name());
    told.set_kind(role.kind());
    told.set_count(numbers.count(index));
    told.set_place(static_cast<uint32_t>(numbers.place_role(index)));
  }
}

}  // namespace tutti
