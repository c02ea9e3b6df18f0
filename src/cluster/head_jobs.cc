// What the head does for jobs.
#include <algorithm>
#include <set>

#include "base/log.h"
#include "cluster/head.h"
#include "cluster/host_names.h"
#include "cluster/report_fold.h"

namespace tutti {
namespace {

constexpr Duration kResendPause = 1s;

}  // namespace

void Head::send(NodeId to, const cluster::Message& message) {
  const std::string bytes = message.SerializeAsString();
  tree_->send(RangeSet(to), as_bytes(bytes));
}

uint64_t Head::post_placed(const HeadJob& job) {
  cluster::HeadRecord record;
  *record.mutable_placed() = placed_of(job);
  return post(job.id, record);
}

uint64_t Head::post_changed(const HeadJob& job) {
  cluster::HeadRecord record;
  *record.mutable_changed() = changed_of(job);
  return post(job.id, record);
}

// In order: whoever came first and finds no room lets nobody pass, but to hosts that it may not use
// itself. Such are those that run one user's jobs alone. Who could not be placed even if the
// cluster had nothing else holds up nobody, until a host comes or changes.
void Head::place_queued() {
  std::set<std::string> waiting;  // users whose first job finds no room
  while (const auto next = state_.queue.first_but(waiting)) {
    HeadJob* job = state_.find(next->job);
    const auto hosts = waiting.empty() ? Placement::Hosts::all : Placement::Hosts::of_user_alone;
    if (job != nullptr && job->state == cluster::QUEUED && !place(*job, hosts)) {
      if (auto ever = state_.placement.could_hold(job->spec); !ever) {
        job->why = fmt::format("no host can hold it any more: {}", ever.error().message());
        state_.queue.step_aside(next->account);
        changed(*job);
        continue;
      }
      waiting.insert(next->account);
      if (!state_.placement.has_hosts_of_users()) return;
    } else {
      state_.queue.pop(next->account);
    }
  }
}

bool Head::place(HeadJob& job, Placement::Hosts hosts) {
  auto layout = state_.placement.place(job.spec, hosts);
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

void Head::appoint(HeadJob& job, NodeId coordinator, bool fresh) {
  ++job.term;
  job.coordinator = coordinator;
  job.fresh = fresh;
  job.heard = false;
  const uint64_t sequence = post_placed(job);
  strands_->spawn(appoint_durably(job.id, job.term, sequence));
}

// What is told is not undone by a crash.
Task<void> Head::send_durably(RangeSet to, cluster::Message message, uint64_t sequence) {
  auto kept = co_await durable(sequence);
  if (!kept) co_return;
  const std::string bytes = message.SerializeAsString();
  tree_->send(to, as_bytes(bytes));
}

Task<void> Head::appoint_durably(uint64_t id, uint32_t term, uint64_t sequence) {
  auto kept = co_await durable(sequence);
  if (!kept) co_return;
  const HeadJob* job = state_.find(id);
  if (job != nullptr && job->term == term) send_appointment(*job);
  time_.ring();
}

void Head::send_appointment(const HeadJob& job) {
  cluster::Message message;
  cluster::Appointment& appointment = *message.mutable_appointment();
  appointment.set_job(job.id);
  appointment.set_term(job.term);
  *appointment.mutable_spec() = job.spec;
  *appointment.mutable_layout() = job.layout;
  appointment.set_fresh(job.fresh);
  const RangeSet nodes = nodes_of(job.layout);
  set_pairs(nodes.minus(state_.placement.alive()).minus(tree_->away()), appointment.mutable_lost());
  FoldedNames members;
  for (const NodeId node : nodes.members()) members.add(place_of(node));
  appointment.set_members(members.text());
  appointment.set_master_address(place_of(nodes.front()));
  appointment.set_restarts(job.restarts);
  *appointment.mutable_taken() = job.taken;
  send(job.coordinator, message);
}

// A job whose coordinator's host is gone gets another. One whose agent comes back goes on with it.
void Head::find_coordinators() {
  for (const auto& [id, job] : state_.jobs) {
    if (!job->placed || is_over(job->state) || state_.placement.is_alive(job->coordinator))
      continue;
    if (tree_->away_for(job->coordinator)) continue;
    const RangeSet mine = nodes_of(job->layout).common(state_.placement.alive());
    if (mine.empty() && state_.placement.alive().empty()) continue;
    appoint(*job, mine.empty() ? state_.placement.alive().front() : mine.front(), false);
  }
}

void Head::on_update(NodeId from, const cluster::JobUpdate& update) {
  HeadJob* job = state_.find(update.job());
  cluster::JobUpdateAck ack;
  ack.set_job(update.job());
  ack.set_sequence(update.sequence());
  const bool over = job == nullptr || is_over(job->state);
  if (over || update.term() != job->term) {
    // Nobody forgets a job because of what a crash may undo: who is not answered asks again.
    if (job != nullptr && job->sequence > log_->durable_sequence()) return;
    cluster::Message message;
    if (over && is_over(update.state())) {
      *message.mutable_update_ack() = std::move(ack);
    } else {
      // It was replaced while it was cut off.
      message.mutable_forget()->set_job(update.job());
      message.mutable_forget()->set_term(over ? ~0U : job->term);
    }
    return send(from, message);
  }
  const cluster::JobState before = job->state;
  const uint64_t epoch_before = job->epoch;
  const uint64_t sequence = take_update(*job, update);
  if (is_over(job->state)) {
    strands_->spawn(acknowledge_durably(from, std::move(ack), sequence));
    forget_old();
    place_queued();
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
  // In another epoch it may be on other hosts.
  if (job->state != before || job->epoch != epoch_before) changed(*job);
}

// Gives the record, if there is something new.
uint64_t Head::take_update(HeadJob& job, const cluster::JobUpdate& update) {
  const std::string before = changed_of(job).SerializeAsString();
  job.heard = true;
  job.epoch = update.epoch();
  job.restarts = update.restarts();
  job.taken = update.taken();
  job.why = update.why();
  if (update.has_culprit()) job.culprit = update.culprit();
  job.leftovers = update.leftovers();
  job.wanted = set_from(update.wanted()).value_or(RangeSet());
  job.astray = nodes_apart(JobNumbers(job.spec), job.layout, update.layout(), job.wanted);
  job.state = update.state();
  if (is_over(job.state)) {
    const RangeSet silent = set_from(update.silent()).value_or(RangeSet());
    give_up(job, silent.common(nodes_of(job.layout)));
    state_.settle_room(job, nodes_of(job.layout));
    state_.end(job, world_.clock().unix_ns());
  }
  return before == changed_of(job).SerializeAsString() ? 0 : post_changed(job);
}

// A host says what is left of a job that is over, and in the end that nothing is.
void Head::on_leftovers(HeadJob* job, const cluster::JobReport& report) {
  RangeSet clean;
  bool changes = false;
  const RangeSet before = job == nullptr ? RangeSet() : HeadState::held_by(*job);
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
    state_.settle_room(*job, before);
    post_changed(*job);
    strands_->spawn(write_log());
    place_queued();
  }
  if (clean.empty()) return;
  cluster::Message message;
  message.mutable_ack()->set_job(report.job());
  message.mutable_ack()->set_released(true);
  const uint64_t sequence = job == nullptr ? 0 : job->sequence;
  strands_->spawn(send_durably(std::move(clean), std::move(message), sequence));
}

void Head::forget_old() {
  while (state_.over.size() > options_.most_ended) {
    const uint64_t id = state_.over.front();
    const HeadJob* job = state_.find(id);
    const bool needed = job != nullptr && (!job->watchers.empty() || !job->leftovers.empty() ||
                                           !job->given_up.empty());
    if (needed) {
      state_.over.pop_front();
      state_.over.push_back(id);  // later
      return;
    }
    if (job != nullptr && feed_) feed_->part(*job);
    cluster::HeadRecord record;
    record.set_forgotten(id);
    post(id, record);
    state_.forget(id);
  }
}

// The client hears of an end when it cannot be undone.
Task<void> Head::acknowledge_durably(NodeId to, cluster::JobUpdateAck ack, uint64_t sequence) {
  auto kept = co_await durable(sequence);
  if (!kept) co_return;
  cluster::Message message;
  *message.mutable_update_ack() = ack;
  send(to, message);
  if (HeadJob* job = state_.find(ack.job())) changed(*job);
}

void Head::grant(HeadJob& job) {
  auto layout = state_.placement.replace(job.spec, job.layout, job.wanted);
  if (!layout) {
    job.why = layout.error().message();
    return;
  }
  const JobNumbers numbers(job.spec);
  RangeSet left;
  for (const ProcessId process : job.wanted.members())
    if (const auto node = node_of(numbers, job.layout, process)) left.add(*node);
  job.layout = std::move(*layout);
  job.wanted = RangeSet();
  job.astray.add(left);  // until it is heard to go by this layout
  give_up(job, left);
  const uint64_t sequence = post_placed(job);
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
  strands_->spawn(send_durably(RangeSet(job.coordinator), std::move(message), sequence));
}

// Nobody knows what is on the disk now: whoever starts us again reads it.
void Head::log_failed(const Error& why) {
  if (why.code() != Code::cancelled) strands_->cancel(why.context("the head ends"));
}

void Head::changed(HeadJob& job) {
  ++job.changes;
  for (JobWatcher* watcher : job.watchers) watcher->on_job_changed(job.id);
}

// Appointments that nobody answered are told again, and hosts that are back asked again.
Task<Result<void>> Head::keep_time() {
  while (true) {
    bool waiting = ask_given_up();
    for (const auto& [id, job] : state_.jobs) {
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
