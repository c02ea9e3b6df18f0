// The coordinators an agent hosts.
#include <algorithm>

#include "base/log.h"
#include "cluster/agent.h"

namespace tutti {
namespace {

constexpr Duration kLogPause = 200ms;

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
  // Told again: the head has not heard from us yet, and will.
  if (before != nullptr && before->coordinator.appointment().term() >= appointment.term()) return;
  if (before != nullptr) coordinators_.erase(job);
  Coordinator coordinator(std::move(record), node(), world_.clock().now());
  auto hosted = std::make_unique<Hosted>(std::move(coordinator));
  Hosted& added = *hosted;
  added.serial = next_serial_++;
  coordinators_.emplace(job, std::move(hosted));
  carry_out(added);
}

cluster::AgentRecord Agent::record_of(const Hosted& hosted) const {
  cluster::AgentRecord record;
  *record.mutable_coordinator() = hosted.coordinator.record();
  return record;
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
    if (!orders.log && orders.parcels.empty()) break;
    if (orders.log) {
      const std::string bytes = record_of(hosted).SerializeAsString();
      log_->post(bytes);
    }
    if (hosted.waiting || orders.durably) {
      hosted.orders.push_back(std::move(orders));
      if (!std::exchange(hosted.waiting, true))
        strands_->spawn(carry_out_durably(job, hosted.serial));
    } else {
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
  record.mutable_coordinator()->mutable_appointment()->set_job(job);
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
