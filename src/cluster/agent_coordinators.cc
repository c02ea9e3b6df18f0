// The coordinators an agent hosts.
#include <algorithm>

#include "base/log.h"
#include "base/queue_mark.h"
#include "cluster/agent.h"

namespace tutti {
namespace {

constexpr Duration kLogPause = 200ms;
// Of one coordinator that wait for the log: seconds of a busy job.
constexpr size_t kMostOrders = 4096;
// Of jobs, the newest, that were coordinated here.
constexpr size_t kRememberedTerms = 4096;

}  // namespace

Agent::Hosted* Agent::coordinating(uint64_t job) {
  const auto found = coordinators_.find(job);
  return found == coordinators_.end() ? nullptr : found->second.get();
}

const Coordinator* Agent::find_coordinator(uint64_t job) const {
  const auto found = coordinators_.find(job);
  return found == coordinators_.end() ? nullptr : &found->second->coordinator;
}

void Agent::appoint(cluster::CoordinatorRecord record) {
  const cluster::Appointment& appointment = record.appointment();
  const uint64_t job = appointment.job();
  const JobNumbers numbers(appointment.spec());
  if (auto sound = check_layout(numbers, appointment.layout()); !sound) {
    TUTTI_LOG(error, "refused to coordinate", {{"job", job}, {"why", sound.error().text()}});
    return;
  }
  Hosted* before = coordinating(job);
  const uint32_t term = before != nullptr ? before->coordinator.appointment().term() : 0;
  // Told again: the head has not heard from us yet, and will.
  if (term == appointment.term()) return;
  const auto past = past_terms_.get().find(job);
  if (std::max(term, past == past_terms_.get().end() ? 0 : past->second) >= appointment.term())
    return ignore_old(appointment);
  past_terms_.change().erase(job);
  if (before != nullptr) coordinators_.erase(job);
  Coordinator coordinator(std::move(record), node(), world_.clock().now());
  coordinator.set_away(tree_->away());
  auto hosted = std::make_unique<Hosted>(std::move(coordinator));
  Hosted& added = *hosted;
  added.serial = next_serial_++;
  coordinators_.emplace(job, std::move(hosted));
  carry_out(added);
}

// Whoever says it again would have two coordinators decide in one epoch.
void Agent::ignore_old(const cluster::Appointment& appointment) {
  uint32_t& logged = logged_terms_.change()[appointment.job()];
  if (std::exchange(logged, appointment.term()) != appointment.term())
    TUTTI_LOG(warn, "refused an old appointment",
              {{"job", appointment.job()}, {"term", appointment.term()}});
  Terms& terms = logged_terms_.change();
  if (terms.size() > kRememberedTerms) terms.erase(terms.begin());
}

void Agent::remember_term(uint64_t job, uint32_t term) {
  Terms& terms = past_terms_.change();
  terms[job] = std::max(terms[job], term);
  if (terms.size() > kRememberedTerms) terms.erase(terms.begin());
}

cluster::AgentRecord Agent::record_of(const Hosted& hosted) const {
  cluster::AgentRecord record;
  *record.mutable_coordinator() = hosted.coordinator.record();
  return record;
}

// What a coordinator has heard counts when it is as durable as what it makes of it. One that was
// lost with its agent before anything of it was durable comes back with the same life.
void Agent::tell_watch(const Coordinator& coordinator, const CoordinatorOrders& orders) const {
  if (options_->exits == nullptr) return;
  const uint64_t life = coordinator.life() ^ tree_->instance();
  for (const auto& [processes, row] : orders.heard)
    options_->exits->answered(life, coordinator.job(), row, processes);
}

void Agent::post(const CoordinatorOrders& orders) {
  for (const CoordinatorOrders::Parcel& parcel : orders.parcels) {
    const std::string bytes = parcel.message.SerializeAsString();
    tree_->send(parcel.to, as_bytes(bytes));
  }
}

// Orders go out in order; those that need the log wait for it, and others behind them.
void Agent::carry_out(Hosted& hosted) {
  if (std::exchange(hosted.carrying, true)) return;
  const uint64_t job = hosted.coordinator.job();
  while (true) {
    CoordinatorOrders orders = hosted.coordinator.take_orders();
    if (options_->exits != nullptr)
      for (const auto& [processes, row] : orders.heard) options_->exits->heard(job, row, processes);
    if (!orders.log && orders.parcels.empty()) {
      tell_watch(hosted.coordinator, orders);
      break;
    }
    if (orders.log) {
      const std::string bytes = record_of(hosted).SerializeAsString();
      log_->post(bytes);
    }
    if (hosted.waiting || orders.durably) {
      // The disk stands still. What is not sent is as what was lost, and is asked for again.
      if (hosted.orders.size() >= kMostOrders) continue;
      hosted.orders.push_back(std::move(orders));
      TUTTI_QUEUE("agent: orders of a coordinator that wait for the log", hosted.orders.size(),
                  kMostOrders);
      if (!std::exchange(hosted.waiting, true))
        strands_->spawn(carry_out_durably(job, hosted.serial));
    } else {
      tell_watch(hosted.coordinator, orders);
      post(orders);
    }
  }
  hosted.carrying = false;
  if (hosted.coordinator.over()) {
    forget_coordinator(job);
    return;
  }
  ring_time();
}

void Agent::forget_coordinator(uint64_t job) {
  cluster::AgentRecord record;
  if (const Hosted* hosted = coordinating(job))
    remember_term(job, hosted->coordinator.appointment().term());
  record.mutable_coordinator()->mutable_appointment()->set_job(job);
  record.mutable_coordinator()->mutable_appointment()->set_term(past_terms_.change()[job]);
  record.mutable_coordinator()->set_ended(true);
  const std::string bytes = record.SerializeAsString();
  log_->post(bytes);
  coordinators_.erase(job);
  ring_time();
}

// Records that nobody waits for shall not wait for ever.
Task<void> Agent::write_log() {
  auto slept = co_await world_.clock().sleep(kLogPause);
  writing_ = false;
  if (!slept) co_return;
  const uint64_t sequence = log_->last_sequence();
  auto durable = co_await log_->durable(sequence);
  if (!durable) log_failed(durable.error());
}

// Nobody knows what is on the disk now: whoever starts us again reads it.
void Agent::log_failed(const Error& why) {
  if (why.code() != Code::cancelled) strands_->cancel(why.context("the agent ends"));
}

Task<void> Agent::carry_out_durably(uint64_t job, uint64_t serial) {
  while (true) {
    const uint64_t sequence = log_->last_sequence();
    auto durable = co_await log_->durable(sequence);
    if (!durable) {
      log_failed(durable.error());
      co_return;
    }
    Hosted* hosted = coordinating(job);
    if (hosted == nullptr || hosted->serial != serial) co_return;
    // Those that came meanwhile have their records behind this one.
    const CoordinatorOrders orders = std::move(hosted->orders.front());
    hosted->orders.erase(hosted->orders.begin());
    tell_watch(hosted->coordinator, orders);
    post(orders);
    hosted = coordinating(job);
    if (hosted == nullptr || hosted->serial != serial) co_return;
    if (!hosted->orders.empty()) continue;
    hosted->waiting = false;
    co_return;
  }
}

void Agent::ring_time() {
  time_.ring();
  if (strands_ != nullptr && !std::exchange(keeping_time_, true)) strands_->spawn(keep_time());
}

// One strand for the clocks of all coordinators, and for what has to be tidied; only while there
// are any.
Task<Result<void>> Agent::keep_time() {
  while (true) {
    reap_keepers();
    if (log_->durable_sequence() < log_->last_sequence() && !std::exchange(writing_, true))
      strands_->spawn(write_log());
    Instant due = kNever;
    const Instant now = world_.clock().now();
    std::vector<uint64_t> ringing;
    for (const auto& [job, hosted] : coordinators_) {
      const Instant at = hosted->coordinator.due();
      if (at <= now) ringing.push_back(job);
      if (at > now) due = std::min(due, at);
    }
    for (const uint64_t job : ringing) {
      Hosted* hosted = coordinating(job);
      if (hosted == nullptr) continue;
      hosted->coordinator.on_time(now);
      carry_out(*hosted);
      if (Hosted* still = coordinating(job)) due = std::min(due, still->coordinator.due());
    }
    if (due == kNever) break;
    auto woken = co_await time_.until(due);
    if (!woken) co_return woken;
  }
  keeping_time_ = false;
  co_return {};
}

}  // namespace tutti
