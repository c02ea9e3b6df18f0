// What tests of coordinators share: jobs, layouts and rows in a line. For tests only.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "cluster/coordinator.h"
#include "cluster/job_limits.h"

namespace tutti {

inline RangeSet set(std::string_view text) {
  return text.empty() ? RangeSet() : RangeSet::parse(text).value();
}

struct RoleOptions {
  std::string name = "work";
  job::Role::Kind kind = job::Role::GANG;
  uint32_t count = 0;
  job::Strategy strategy = job::ONE_FOR_ALL;
  std::vector<std::string> needs = {};
  std::string beside = {};
  bool health = false;
  uint32_t restarts = kAlwaysRestart;  // of everything but user errors
  Duration delay = 0s;
};

inline job::Role& add_role(job::Spec& spec, const RoleOptions& options) {
  job::Role& role = *spec.add_roles();
  role.set_name(options.name);
  role.set_kind(options.kind);
  role.set_count(options.count);
  role.set_slots(1);
  role.set_strategy(options.strategy);
  for (const std::string& need : options.needs) role.add_needs(need);
  role.set_beside(options.beside);
  if (options.health) role.mutable_health()->set_port(80);
  const job::ErrorClass classes[] = {job::KILLED, job::OUT_OF_MEMORY, job::HOST_LOST, job::HANG,
                                     job::NOT_STARTED};
  for (const job::ErrorClass error : classes) {
    if (options.restarts == 0) break;
    job::Budget& budget = *role.add_budgets();
    budget.set_error(error);
    budget.set_restarts(options.restarts);
    budget.set_delay_ns(to_ns(options.delay));
    budget.set_longest_delay_ns(to_ns(8 * options.delay));
  }
  return role;
}

inline job::Spec spec_of(std::vector<RoleOptions> roles) {
  job::Spec spec;
  spec.set_name("test");
  spec.set_grace_ns(to_ns(5s));
  for (const RoleOptions& role : roles) add_role(spec, role);
  return spec;
}

// Every role from host 1 on, so many to a host.
inline Segments layout_of(const job::Spec& spec, uint32_t per_node) {
  Segments layout;
  for (int index = 0; index < spec.roles_size(); ++index) {
    const job::Role& role = spec.roles(index);
    if (role.kind() == job::Role::SIDECAR) continue;
    cluster::Segment& segment = *layout.Add();
    segment.set_role(static_cast<uint32_t>(index));
    segment.set_first_node(1);
    segment.set_last_node((role.count() + per_node - 1) / per_node);
    segment.set_per_node(per_node);
    segment.set_count(role.count());
  }
  return layout;
}

inline cluster::Appointment appointment_of(const job::Spec& spec, uint32_t per_node = 2,
                                           uint32_t term = 1) {
  cluster::Appointment appointment;
  appointment.set_job(7);
  appointment.set_term(term);
  *appointment.mutable_spec() = spec;
  *appointment.mutable_layout() = layout_of(spec, per_node);
  appointment.set_fresh(term == 1);
  return appointment;
}

inline cluster::Row row_of(cluster::Row::What what, uint64_t epoch, const RangeSet& processes,
                           const RangeSet& hosts = {}) {
  cluster::Row row;
  row.set_what(what);
  row.set_epoch(epoch);
  set_pairs(processes, row.mutable_processes());
  set_pairs(hosts, row.mutable_hosts());
  return row;
}

// A coordinator, what it said since it was asked last, and hosts that can be made to obey.
struct CoordinatorBench {
  explicit CoordinatorBench(const cluster::Appointment& appointment, uint32_t counter = 0)
      : CoordinatorBench(record_of(appointment, counter)) {}
  explicit CoordinatorBench(cluster::CoordinatorRecord record)
      : coordinator(std::move(record), 1, now) {
    listen();
  }
  static cluster::CoordinatorRecord record_of(const cluster::Appointment& appointment,
                                              uint32_t counter) {
    cluster::CoordinatorRecord record;
    *record.mutable_appointment() = appointment;
    record.set_counter(counter);
    return record;
  }

  // ---- telling it

  void report(std::vector<cluster::Row> rows) {
    cluster::JobReport report;
    report.set_job(7);
    for (cluster::Row& row : rows) *report.add_rows() = std::move(row);
    coordinator.on_report(report, now);
    listen();
  }
  void started(std::string_view processes, uint64_t epoch = 0) {
    report(
        {row_of(cluster::Row::STARTED, epoch == 0 ? coordinator.epoch() : epoch, set(processes))});
  }
  void exited(std::string_view processes, job::ErrorClass error, uint64_t epoch = 0) {
    cluster::Row row =
        row_of(cluster::Row::EXITED, epoch == 0 ? coordinator.epoch() : epoch, set(processes));
    row.mutable_exit()->set_error(error);
    report({std::move(row)});
  }
  void ended(std::string_view hosts) { report({row_of(cluster::Row::ENDED, 0, {}, set(hosts))}); }
  // These hosts have done what the last directive says.
  void confirm(std::string_view hosts, uint32_t revision = ~0U) {
    cluster::Row row = row_of(cluster::Row::STARTED, coordinator.epoch(), {}, set(hosts));
    row.set_count(1 + (revision == ~0U ? last_directive.revision() : revision));
    report({std::move(row)});
  }
  // All hosts obey the last directive.
  void obey() {
    const RangeSet start = set_from(last_directive.start()).value();
    cluster::Row done = row_of(cluster::Row::STARTED, coordinator.epoch(), {}, coordinator.nodes());
    done.set_count(last_directive.revision() + 1);
    report({row_of(cluster::Row::STARTED, coordinator.epoch(), start), std::move(done)});
  }
  void lost(std::string_view hosts) {
    coordinator.on_lost(set(hosts), now);
    listen();
  }
  void wait(Duration time) {
    now += time;
    if (coordinator.due() <= now) coordinator.on_time(now);
    listen();
  }
  void request_end(Duration grace, bool preempted = false) {
    cluster::EndRequest request;
    request.set_job(7);
    request.set_why("because");
    request.set_grace_ns(to_ns(grace));
    request.set_preempted(preempted);
    coordinator.on_end_request(request, now);
    listen();
  }
  void ack() {
    coordinator.on_update_ack(last_update.sequence());
    listen();
  }

  // ---- hearing it; all of the last call

  void listen() {
    orders = coordinator.take_orders();
    for (const CoordinatorOrders::Parcel& parcel : orders.parcels) {
      if (parcel.message.has_directive()) last_directive = parcel.message.directive();
      if (parcel.message.has_update()) last_update = parcel.message.update();
      if (parcel.message.has_end()) last_end = parcel.message.end();
    }
  }
  // To whom messages of a kind went, in order: "1-4" or "1-2; 3".
  std::string to(cluster::Message::WhatCase what) const {
    std::string all;
    for (const CoordinatorOrders::Parcel& parcel : orders.parcels)
      if (parcel.message.what_case() == what) all += (all.empty() ? "" : "; ") + parcel.to.text();
    return all;
  }
  std::string directed() const { return to(cluster::Message::kDirective); }
  std::string told_to_end() const { return to(cluster::Message::kEnd); }
  std::string start() const { return set_from(last_directive.start()).value().text(); }
  std::string stop() const { return set_from(last_directive.stop()).value().text(); }
  std::string dead() const { return set_from(last_directive.dead()).value().text(); }
  std::string wanted() const { return set_from(last_update.wanted()).value().text(); }
  cluster::JobState state() const { return coordinator.state(); }

  Instant now{};
  Coordinator coordinator;
  CoordinatorOrders orders;
  cluster::Directive last_directive;
  cluster::JobUpdate last_update;
  cluster::End last_end;
  std::map<ProcessId, uint64_t> lives;  // the epochs of those that were started again
};

}  // namespace tutti
