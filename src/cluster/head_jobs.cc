// What the head does for jobs.
#include <algorithm>

#include "base/log.h"
#include "cluster/head.h"
#include "cluster/host_names.h"
#include "cluster/report_fold.h"

namespace tutti {
namespace {

constexpr Duration kResendPause = 1s;
// Of jobs that ended; older ones are only in exported records.
constexpr size_t kMostOver = 100'000;

bool is_over(cluster::JobState state) { return state >= cluster::SUCCEEDED; }

}  // namespace

Head::Job* Head::find(uint64_t job) {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : found->second.get();
}

const Head::Job* Head::find(uint64_t job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : found->second.get();
}

void Head::send(NodeId to, const cluster::Message& message) {
  const std::string bytes = message.SerializeAsString();
  tree_->send(RangeSet(to), as_bytes(bytes));
}

uint64_t Head::post(const cluster::HeadRecord& record) {
  const std::string bytes = record.SerializeAsString();
  return log_->post(bytes);
}

cluster::HeadRecord Head::placed_record(const Job& job) const {
  cluster::HeadRecord record;
  cluster::JobPlaced& placed = *record.mutable_placed();
  placed.set_job(job.id);
  placed.set_term(job.term);
  placed.set_coordinator(job.coordinator);
  *placed.mutable_layout() = job.layout;
  placed.set_fresh(job.fresh);
  return record;
}

cluster::HeadRecord Head::changed_record(const Job& job) const {
  cluster::HeadRecord record;
  cluster::JobChanged& changed = *record.mutable_changed();
  changed.set_job(job.id);
  changed.set_state(job.state);
  changed.set_epoch(job.epoch);
  changed.set_restarts(job.restarts);
  changed.set_why(job.why);
  *changed.mutable_culprit() = job.culprit;
  *changed.mutable_leftovers() = job.leftovers;
  changed.set_at_unix_ns(world_.clock().unix_ns());
  return record;
}

// In order: whoever came first and finds no room lets nobody pass.
void Head::place_queued() {
  while (!queue_.empty()) {
    Job* job = find(queue_.front());
    if (job != nullptr && job->state == cluster::QUEUED && !place(*job)) return;
    queue_.pop_front();
  }
}

bool Head::place(Job& job) {
  auto layout = placement_.place(job.spec);
  if (!layout) {
    job.why = layout.error().message();
    return false;
  }
  job.layout = std::move(*layout);
  job.placed = true;
  job.state = cluster::STARTING;
  job.why.clear();
  job.started_ns = world_.clock().unix_ns();
  appoint(job, job.layout.Get(0).first_node(), true);
  changed(job);
  return true;
}

void Head::appoint(Job& job, NodeId coordinator, bool fresh) {
  ++job.term;
  job.coordinator = coordinator;
  job.fresh = fresh;
  job.heard = false;
  const uint64_t sequence = post(placed_record(job));
  strands_->spawn(send_durably(job.id, job.term, sequence));
}

Task<void> Head::send_durably(uint64_t id, uint32_t term, uint64_t sequence) {
  auto durable = co_await log_->durable(sequence);
  if (!durable) {
    log_failed(durable.error());
    co_return;
  }
  const Job* job = find(id);
  if (job != nullptr && job->term == term) send_appointment(*job);
  time_.ring();
}

void Head::send_appointment(const Job& job) {
  cluster::Message message;
  cluster::Appointment& appointment = *message.mutable_appointment();
  appointment.set_job(job.id);
  appointment.set_term(job.term);
  *appointment.mutable_spec() = job.spec;
  *appointment.mutable_layout() = job.layout;
  appointment.set_fresh(job.fresh);
  const RangeSet nodes = nodes_of(job.layout);
  set_pairs(nodes.minus(placement_.alive()), appointment.mutable_lost());
  FoldedNames members;
  for (const NodeId node : nodes.members()) members.add(place_of(node));
  appointment.set_members(members.text());
  appointment.set_master_address(place_of(nodes.front()));
  send(job.coordinator, message);
}

// A job whose coordinator's host is gone gets another.
void Head::find_coordinators() {
  for (const auto& [id, job] : jobs_) {
    if (!job->placed || is_over(job->state) || placement_.is_alive(job->coordinator)) continue;
    const RangeSet mine = nodes_of(job->layout).common(placement_.alive());
    if (mine.empty() && placement_.alive().empty()) continue;
    appoint(*job, mine.empty() ? placement_.alive().front() : mine.front(), false);
  }
}

void Head::on_update(NodeId from, const cluster::JobUpdate& update) {
  Job* job = find(update.job());
  cluster::JobUpdateAck ack;
  ack.set_job(update.job());
  ack.set_sequence(update.sequence());
  const bool over = job == nullptr || is_over(job->state);
  if (over && is_over(update.state())) {
    cluster::Message message;
    *message.mutable_update_ack() = std::move(ack);
    return send(from, message);
  }
  if (over || update.term() != job->term) {
    // It was replaced while it was cut off.
    cluster::Message message;
    message.mutable_forget()->set_job(update.job());
    message.mutable_forget()->set_term(over ? ~0U : job->term);
    return send(from, message);
  }
  job->heard = true;
  job->epoch = update.epoch();
  job->restarts = update.restarts();
  job->why = update.why();
  if (update.has_culprit()) job->culprit = update.culprit();
  job->leftovers = update.leftovers();
  job->wanted = set_from(update.wanted()).value_or(RangeSet());
  const bool changes = job->state != update.state();
  job->state = update.state();
  const uint64_t sequence = changes ? post(changed_record(*job)) : 0;
  if (is_over(job->state)) on_final(*job);
  if (changes && is_over(job->state)) {
    strands_->spawn(acknowledge_durably(from, std::move(ack), sequence));
    return;
  }
  cluster::Message message;
  *message.mutable_update_ack() = std::move(ack);
  send(from, message);
  if (job->end && !update.end_known()) {
    // It never heard, or was appointed after somebody who had.
    cluster::Message again;
    *again.mutable_end_request() = *job->end;
    send(from, again);
  }
  if (!job->wanted.empty()) grant(*job);
  if (changes) changed(*job);
}

RangeSet Head::held_by(const Job& job) const {
  if (!job.placed) return {};
  const RangeSet hosts = nodes_of(job.layout);
  return is_over(job.state) ? hosts.common(hosts_of(job.leftovers)) : hosts;
}

// Gives back, or takes again, the room of hosts that it held before and does now.
void Head::settle_room(Job& job, const RangeSet& before) {
  const RangeSet now = held_by(job);
  placement_.give_back(job.spec, job.layout, before.minus(now));
  placement_.take(job.spec, job.layout, now.minus(before));
}

// A host says what is left of a job that is over, and in the end that nothing is.
void Head::on_leftovers(Job* job, const cluster::JobReport& report) {
  RangeSet clean;
  bool changes = false;
  const RangeSet before = job == nullptr ? RangeSet() : held_by(*job);
  for (const cluster::Row& row : report.rows()) {
    if (!says_ended(row)) continue;
    const RangeSet hosts = set_from(row.hosts()).value_or(RangeSet());
    const bool ended = row.what() == cluster::Row::ENDED;
    if (ended) clean.add(hosts);
    if (job == nullptr || (ended && !hosts_of(job->leftovers).meets(hosts))) continue;
    changes = true;
    remove_hosts(hosts, job->leftovers);
    if (!ended) *job->leftovers.Add() = row;
  }
  if (changes) {
    settle_room(*job, before);
    post(changed_record(*job));
    strands_->spawn(write_log());
    place_queued();
  }
  if (clean.empty()) return;
  cluster::Message message;
  message.mutable_ack()->set_job(report.job());
  message.mutable_ack()->set_released(true);
  const std::string bytes = message.SerializeAsString();
  tree_->send(clean, as_bytes(bytes));
}

void Head::on_final(Job& job) {
  job.ended_ns = world_.clock().unix_ns();
  settle_room(job, nodes_of(job.layout));
  over_.push_back(job.id);
  forget_old();
  place_queued();
}

void Head::forget_old() {
  while (over_.size() > kMostOver) {
    const Job* job = find(over_.front());
    if (job != nullptr && (!job->watchers.empty() || !job->leftovers.empty())) {
      over_.push_back(over_.front());  // later
      over_.pop_front();
      return;
    }
    cluster::HeadRecord record;
    record.set_forgotten(over_.front());
    post(record);
    if (job != nullptr) keys_.erase(job->key);
    jobs_.erase(over_.front());
    over_.pop_front();
  }
}

Task<void> Head::change_durably(uint64_t id, uint64_t sequence) {
  auto kept = co_await durable(sequence);
  if (!kept) co_return;
  if (Job* job = find(id)) changed(*job);
}

// The client hears of an end when it cannot be undone.
Task<void> Head::acknowledge_durably(NodeId to, cluster::JobUpdateAck ack, uint64_t sequence) {
  auto durable = co_await log_->durable(sequence);
  if (!durable) {
    log_failed(durable.error());
    co_return;
  }
  cluster::Message message;
  *message.mutable_update_ack() = ack;
  send(to, message);
  if (Job* job = find(ack.job())) changed(*job);
}

void Head::grant(Job& job) {
  auto layout = placement_.replace(job.spec, job.layout, job.wanted);
  if (!layout) {
    job.why = layout.error().message();
    return;
  }
  job.layout = std::move(*layout);
  job.wanted = RangeSet();
  post(placed_record(job));
  cluster::Message message;
  cluster::Grant& grant = *message.mutable_grant();
  grant.set_job(job.id);
  grant.set_term(job.term);
  *grant.mutable_layout() = job.layout;
  FoldedNames members;
  const RangeSet nodes = nodes_of(job.layout);
  for (const NodeId node : nodes.members()) members.add(place_of(node));
  grant.set_members(members.text());
  grant.set_master_address(place_of(nodes.front()));
  send(job.coordinator, message);
}

// Nobody knows what is on the disk now: whoever starts us again reads it.
void Head::log_failed(const Error& why) {
  if (why.code() != Code::cancelled) strands_->cancel(why.context("the head ends"));
}

void Head::changed(Job& job) {
  for (JobWatcher* watcher : job.watchers) watcher->on_job_changed(job.id);
}

// Appointments that nobody answered are told again.
Task<Result<void>> Head::keep_time() {
  while (true) {
    bool waiting = false;
    for (const auto& [id, job] : jobs_) {
      if (!job->placed || is_over(job->state) || job->heard) continue;
      waiting = true;
      send_appointment(*job);
    }
    const Instant due = waiting ? world_.clock().now() + kResendPause : kNever;
    auto woken = co_await time_.until(due);
    if (!woken) co_return woken;
    if (world_.clock().now() < due) {
      auto slept = co_await world_.clock().sleep(kResendPause);
      if (!slept) co_return slept;
    }
  }
}

}  // namespace tutti
