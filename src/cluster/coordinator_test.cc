#include "cluster/coordinator_test.h"

#include <csignal>

namespace tutti {
namespace {

constexpr uint64_t kFirstEpoch = epoch_of(1, 1);

// Eight workers on hosts 1 to 4.
job::Spec workers(job::Strategy strategy = job::ONE_FOR_ALL) {
  return spec_of({{.count = 8, .strategy = strategy}});
}

TEST_CASE("a fresh job is started, runs, succeeds, and is over when the head knows") {
  CoordinatorBench bench(appointment_of(workers()));
  CHECK(bench.orders.log);
  CHECK_FALSE(bench.orders.durably);  // the head keeps the first epoch
  CHECK(bench.directed() == "1-4");
  CHECK(bench.start() == "0-7");
  CHECK(bench.stop() == "");
  CHECK(bench.last_directive.epoch() == kFirstEpoch);
  CHECK(bench.last_directive.coordinator() == 1);
  CHECK(bench.state() == cluster::STARTING);
  bench.obey();
  CHECK(bench.state() == cluster::RUNNING);
  CHECK(bench.last_update.state() == cluster::RUNNING);
  bench.exited("0-6", job::NONE);
  CHECK(bench.told_to_end() == "");
  bench.exited("7", job::NONE);
  CHECK(bench.told_to_end() == "1-4");
  CHECK(bench.last_end.grace_ns() == to_ns(5s));
  bench.ended("1-3");
  CHECK(bench.state() == cluster::ENDING);
  bench.ended("4");
  CHECK(bench.state() == cluster::SUCCEEDED);
  CHECK(bench.last_update.state() == cluster::SUCCEEDED);
  CHECK_FALSE(bench.coordinator.over());
  bench.coordinator.on_update_ack(bench.last_update.sequence() - 1);
  CHECK_FALSE(bench.coordinator.over());
  bench.ack();
  CHECK(bench.coordinator.over());
}

TEST_CASE("it is running when every process is, and not before") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.confirm("1-4");
  CHECK(bench.state() == cluster::STARTING);
  bench.started("0-6");
  CHECK(bench.state() == cluster::STARTING);
  bench.started("7");
  CHECK(bench.state() == cluster::RUNNING);
}

TEST_CASE("who is started again with whom is the strategy's choice, in a new epoch") {
  struct Case {
    job::Strategy strategy;
    std::string affected;
  };
  for (const Case& c : {Case{job::ONE_FOR_ALL, "0-7"}, Case{job::ONE_FOR_ONE, "3"},
                        Case{job::REST_FOR_ONE, "3-7"}}) {
    CoordinatorBench bench(appointment_of(workers(c.strategy)));
    bench.obey();
    bench.exited("3", job::KILLED);
    INFO(c.affected);
    CHECK(bench.coordinator.epoch() == kFirstEpoch + 1);
    CHECK(bench.orders.log);
    CHECK(bench.orders.durably);
    CHECK(bench.directed() == "1-4");
    CHECK(bench.stop() == c.affected);
    CHECK(bench.start() == c.affected);
    CHECK(bench.dead() == "3");
    CHECK(bench.to(cluster::Message::kAck) == "1-4");
    CHECK(bench.state() == cluster::RESTARTING);
    CHECK(bench.last_update.restarts() == 1);
    CHECK(bench.last_update.culprit().exit().error() == job::KILLED);
    bench.obey();
    CHECK(bench.state() == cluster::RUNNING);
    bench.exited("0-7", job::NONE, c.affected == "0-7" ? kFirstEpoch + 1 : kFirstEpoch);
    if (c.affected != "0-7") bench.exited(c.affected, job::NONE);
    CHECK(bench.told_to_end() == "1-4");
  }
}

TEST_CASE("a second failure of the same incident costs one more restart of others only") {
  CoordinatorBench bench(appointment_of(spec_of({{.count = 8, .delay = 1s}})));
  bench.obey();
  bench.exited("3", job::KILLED);
  CHECK(bench.last_update.restarts() == 1);
  bench.exited("4-5", job::KILLED, kFirstEpoch);  // went down with it
  CHECK(bench.coordinator.epoch() == kFirstEpoch + 1);
  CHECK(bench.last_update.restarts() == 1);
}

TEST_CASE("a user error ends the job") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.obey();
  bench.exited("3", job::USER_ERROR);
  CHECK(bench.state() == cluster::ENDING);
  CHECK(bench.told_to_end() == "1-4");
  CHECK(bench.coordinator.epoch() == kFirstEpoch);
  bench.exited("0-2,4-7", job::NONE);
  bench.ended("1-4");
  CHECK(bench.last_update.state() == cluster::FAILED);
  CHECK(bench.last_update.why() == "user error");
  CHECK(set_from(bench.last_update.culprit().processes()).value() == set("3"));
}

TEST_CASE("restarts wait as their budget says, longer each time, until there are none left") {
  CoordinatorBench bench(appointment_of(spec_of({{.count = 8, .restarts = 2, .delay = 2s}})));
  bench.obey();
  bench.exited("3", job::KILLED);
  CHECK(bench.stop() == "0-7");
  CHECK(bench.start() == "");
  bench.confirm("1-4");
  bench.wait(1999ms);
  CHECK(bench.directed() == "");
  bench.wait(1ms);
  CHECK(bench.directed() == "1-4");
  CHECK(bench.start() == "0-7");
  CHECK(bench.last_directive.revision() == 1);
  CHECK(bench.coordinator.epoch() == kFirstEpoch + 1);
  bench.obey();
  bench.exited("3", job::KILLED);
  bench.confirm("1-4");
  bench.wait(3999ms);
  CHECK(bench.directed() == "");
  bench.wait(1ms);
  CHECK(bench.start() == "0-7");
  bench.obey();
  bench.exited("3", job::KILLED);
  CHECK(bench.told_to_end() == "1-4");
  bench.ended("1-4");
  CHECK(bench.last_update.state() == cluster::FAILED);
  CHECK(bench.last_update.why().find("no restarts left") != std::string::npos);
}

TEST_CASE("a gang waits for the task it needs to be done") {
  CoordinatorBench bench(
      appointment_of(spec_of({{.name = "load", .kind = job::Role::TASK, .count = 2},
                              {.name = "work", .count = 4, .needs = {"load"}}})));
  CHECK(bench.start() == "0-1");
  bench.obey();
  CHECK(bench.directed() == "");
  CHECK(bench.state() == cluster::STARTING);
  bench.exited("0", job::NONE);
  CHECK(bench.directed() == "");
  bench.exited("1", job::NONE);
  CHECK(bench.directed() == "1-2");
  CHECK(bench.start() == "0-5");
  CHECK(bench.last_directive.revision() == 1);
  CHECK(bench.orders.durably);  // whoever reads it from the log goes on from here
  bench.report({row_of(cluster::Row::STARTED, kFirstEpoch, set("2-5"))});
  bench.confirm("1-2");
  CHECK(bench.state() == cluster::RUNNING);
  // What is done stays done when the gang is started again.
  bench.exited("3", job::KILLED);
  CHECK(bench.start() == "2-5");
  CHECK(bench.stop() == "2-5");
}

TEST_CASE("a gang waits for the service it needs to be well") {
  CoordinatorBench bench(appointment_of(
      spec_of({{.name = "store", .kind = job::Role::SERVICE, .count = 2, .health = true},
               {.name = "work", .count = 2, .needs = {"store"}}})));
  CHECK(bench.start() == "0-1");
  bench.obey();
  CHECK(bench.directed() == "");
  bench.report({row_of(cluster::Row::WELL, kFirstEpoch, set("0"))});
  bench.report({row_of(cluster::Row::WELL, kFirstEpoch, set("0"))});
  bench.report({row_of(cluster::Row::WELL, kFirstEpoch - 1, set("1"))});
  CHECK(bench.directed() == "");
  bench.report({row_of(cluster::Row::WELL, kFirstEpoch, set("1"))});
  CHECK(bench.start() == "0-3");
}

TEST_CASE("a service that returns is started again, and does not keep a job from its end") {
  job::Spec spec = spec_of(
      {{.name = "store", .kind = job::Role::SERVICE, .count = 1}, {.name = "work", .count = 2}});
  spec.set_strategy(job::ONE_FOR_ONE);
  job::Budget& budget = *spec.mutable_roles(0)->add_budgets();
  budget.set_error(job::NONE);
  budget.set_restarts(kAlwaysRestart);
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  bench.exited("0", job::NONE);
  CHECK(bench.start() == "0");
  bench.obey();
  bench.exited("1-2", job::NONE, kFirstEpoch);
  CHECK(bench.told_to_end() == "1");
}

TEST_CASE("a sidecar goes down with its worker, and alone") {
  job::Spec spec = spec_of({{.count = 4, .strategy = job::ONE_FOR_ONE},
                            {.name = "watch",
                             .kind = job::Role::SIDECAR,
                             .strategy = job::ONE_FOR_ONE,
                             .beside = "work"}});
  spec.set_strategy(job::ONE_FOR_ONE);
  CoordinatorBench bench(appointment_of(spec));
  CHECK(bench.start() == "0-7");
  bench.obey();
  bench.exited("2", job::KILLED);
  CHECK(bench.stop() == "2,6");
  CHECK(bench.start() == "2,6");
  bench.obey();
  bench.exited("5", job::KILLED, kFirstEpoch);
  CHECK(bench.stop() == "5");
  CHECK(bench.start() == "5");
}

// 0 is a service, 1-2 workers that need it, 3-4 their sidecars.
job::Spec watched_workers() {
  job::Spec spec = spec_of(
      {{.name = "data", .kind = job::Role::SERVICE, .count = 1, .strategy = job::ONE_FOR_ONE},
       {.count = 2, .strategy = job::ONE_FOR_ONE, .needs = {"data"}},
       {.name = "watch",
        .kind = job::Role::SIDECAR,
        .strategy = job::ONE_FOR_ONE,
        .beside = "work"}});
  spec.set_strategy(job::REST_FOR_ONE);
  return spec;
}

TEST_CASE("a sidecar starts with its role, not before what that needs is there") {
  CoordinatorBench bench(appointment_of(watched_workers()));
  CHECK(bench.start() == "0");
  bench.obey();
  CHECK(bench.start() == "0-4");
  bench.obey();
  CHECK(bench.state() == cluster::RUNNING);
  // Nor after a restart.
  bench.exited("0", job::KILLED, kFirstEpoch);
  CHECK(bench.stop() == "0-4");
  CHECK(bench.start() == "0");
  bench.obey();
  CHECK(bench.start() == "0-4");
}

TEST_CASE("a sidecar that fails is started again beside a worker whose needs are gone") {
  job::Spec spec = watched_workers();
  spec.set_strategy(job::ONE_FOR_ONE);
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  bench.obey();
  bench.exited("0", job::KILLED);
  CHECK(bench.start() == "0");
  bench.exited("3", job::KILLED, kFirstEpoch);
  CHECK(bench.start() == "0,3");
}

TEST_CASE("a lost host's processes are started again where the head says") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.obey();
  bench.lost("2");
  CHECK(bench.state() == cluster::WAITING_FOR_HOSTS);
  CHECK(bench.wanted() == "2-3");
  CHECK(bench.orders.durably);
  CHECK(bench.directed() == "1,3-4");
  CHECK(bench.stop() == "0-7");
  CHECK(bench.start() == "");
  const uint64_t waiting = bench.coordinator.epoch();

  cluster::Grant grant;
  grant.set_job(7);
  grant.set_term(1);
  *grant.mutable_layout() = bench.coordinator.appointment().layout();
  grant.mutable_layout()->Mutable(0)->set_last_node(1);
  grant.mutable_layout()->Mutable(0)->set_count(2);
  const auto add = [&](NodeId node, uint32_t first) {
    cluster::Segment& segment = *grant.mutable_layout()->Add();
    segment.set_first_node(node);
    segment.set_last_node(node);
    segment.set_per_node(2);
    segment.set_first(first);
    segment.set_count(2);
  };
  add(9, 2);
  add(3, 4);
  cluster::Grant unsound = grant;
  bench.coordinator.on_grant(unsound, bench.now);
  bench.listen();
  CHECK(bench.state() == cluster::WAITING_FOR_HOSTS);
  add(4, 6);
  cluster::Grant old = grant;
  old.set_term(0);
  bench.coordinator.on_grant(old, bench.now);
  bench.listen();
  CHECK(bench.state() == cluster::WAITING_FOR_HOSTS);
  bench.coordinator.on_grant(grant, bench.now);
  bench.listen();
  CHECK(bench.coordinator.epoch() > waiting);
  CHECK(bench.orders.durably);
  CHECK(bench.directed() == "1,3-4,9");
  CHECK(bench.start() == "0-7");
  CHECK(bench.state() == cluster::RESTARTING);
  bench.obey();
  CHECK(bench.state() == cluster::RUNNING);
  // Told twice, it is nothing new.
  const uint64_t epoch = bench.coordinator.epoch();
  bench.coordinator.on_grant(grant, bench.now);
  bench.listen();
  CHECK(bench.coordinator.epoch() == epoch);
  CHECK(bench.orders.parcels.empty());
  // The lost host comes back with what it had: it is a stranger now.
  bench.report({row_of(cluster::Row::STARTED, kFirstEpoch, set("2-3"), set("2"))});
  CHECK(bench.told_to_end() == "2");
  CHECK(bench.state() == cluster::RUNNING);
}

TEST_CASE("without restarts for it, a lost host ends the job on the others") {
  CoordinatorBench bench(appointment_of(spec_of({{.count = 8, .restarts = 0}})));
  bench.obey();
  bench.lost("2");
  CHECK(bench.told_to_end() == "1,3-4");
  bench.ended("1,3-4");
  CHECK(bench.last_update.state() == cluster::FAILED);
  CHECK(bench.last_update.why() == "host lost");
}

TEST_CASE("hosts of other jobs, or lost twice, change nothing") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.obey();
  bench.lost("5-1000");
  CHECK(bench.coordinator.epoch() == kFirstEpoch);
  bench.lost("2");
  const uint64_t epoch = bench.coordinator.epoch();
  bench.lost("2");
  CHECK(bench.coordinator.epoch() == epoch);
}

TEST_CASE("a process that does not start, or makes no progress, is started again") {
  CoordinatorBench bench(appointment_of(workers(job::ONE_FOR_ONE)));
  bench.started("0-2,4-7");
  cluster::Row row = row_of(cluster::Row::NOT_STARTED, kFirstEpoch, set("3"));
  row.mutable_exit()->set_error(job::NOT_STARTED);
  bench.report({row});
  CHECK(bench.start() == "3");
  CHECK(bench.last_update.culprit().exit().error() == job::NOT_STARTED);
  bench.obey();
  CHECK(bench.state() == cluster::RUNNING);
  bench.report({row_of(cluster::Row::STALLED, kFirstEpoch, set("5"))});
  CHECK(bench.start() == "5");
  CHECK(bench.last_update.culprit().exit().error() == job::HANG);
}

TEST_CASE(
    "all hosts hear at once, and once, that a process is about to end; the epoch ends with it") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.obey();
  const uint64_t first = bench.coordinator.epoch();
  const auto failing = [&](std::string_view processes, uint64_t epoch) {
    bench.report({row_of(cluster::Row::FAILING, epoch, set(processes))});
    return bench.to(cluster::Message::kBereaved);
  };
  CHECK(failing("3", first) == "1-4");
  CHECK(!bench.orders.durably);
  const cluster::Bereaved& told = bench.orders.parcels.front().message.bereaved();
  CHECK(told.epoch() == first);
  CHECK(set_from(told.processes()).value().text() == "3");
  CHECK(failing("3", first).empty());
  CHECK(failing("4", first).empty());
  CHECK(bench.coordinator.epoch() == first);
  CHECK(bench.state() == cluster::RUNNING);
  bench.exited("3", job::KILLED);
  CHECK(bench.coordinator.epoch() == first + 1);
  CHECK(failing("4", first).empty());  // it goes down with the rest
  bench.obey();
  CHECK(failing("4", first).empty());  // of before
  CHECK(failing("4", first + 1) == "1-4");
}

TEST_CASE("what is told twice, late or in another order changes nothing") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.exited("3", job::KILLED);  // before it is said to have started
  const uint64_t second = bench.coordinator.epoch();
  CHECK(second == kFirstEpoch + 1);
  bench.started("0-7", kFirstEpoch);
  bench.exited("3", job::KILLED, kFirstEpoch);
  bench.exited("4-5", job::USER_ERROR, kFirstEpoch);
  bench.exited("0-7", job::NONE, kFirstEpoch);
  bench.report({row_of(cluster::Row::STALLED, kFirstEpoch, set("3"))});
  CHECK(bench.coordinator.epoch() == second);
  CHECK(bench.state() == cluster::RESTARTING);
  bench.exited("6", job::NONE);  // in the new epoch, before its start
  bench.started("0-7");
  bench.started("0-7");
  bench.confirm("1-4", 0);
  CHECK(bench.state() == cluster::RUNNING);
  bench.exited("6", job::NONE);
  bench.exited("0-5", job::NONE);
  bench.started("0-5");
  CHECK(bench.state() == cluster::RUNNING);
  bench.exited("7", job::NONE);
  CHECK(bench.state() == cluster::ENDING);
}

TEST_CASE("rows that make no sense are ignored") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.exited("3-100", job::KILLED);
  cluster::Row row = row_of(cluster::Row::EXITED, kFirstEpoch, set("3"));
  row.add_processes(1);
  bench.report({row});
  CHECK(bench.coordinator.epoch() == kFirstEpoch);
}

TEST_CASE("what a host may not have started when the epoch changes is started in the new one") {
  CoordinatorBench bench(appointment_of(workers(job::ONE_FOR_ONE)));
  bench.started("0-5");
  bench.exited("1", job::KILLED);  // 6 and 7 have not been heard of
  CHECK(bench.start() == "1,6-7");
  CHECK(bench.stop() == "1,6-7");
  bench.started("6-7", kFirstEpoch);  // in place of which the new ones come
  CHECK(bench.state() == cluster::RESTARTING);
  bench.obey();
  CHECK(bench.state() == cluster::RUNNING);
}

TEST_CASE("what a host may have started when the epoch changes is stopped before it begins anew") {
  CoordinatorBench bench(
      appointment_of(spec_of({{.count = 8, .strategy = job::ONE_FOR_ONE, .delay = 1s}})));
  bench.obey();
  bench.exited("3", job::KILLED);
  bench.wait(1s);
  CHECK(bench.start() == "3");
  bench.exited("5", job::KILLED, kFirstEpoch);
  CHECK(bench.coordinator.epoch() == kFirstEpoch + 2);
  CHECK(bench.stop() == "3,5");
  CHECK(bench.start() == "3");
}

TEST_CASE("directives go again to those who did not answer, and to nobody else") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.started("0-3");
  bench.confirm("1-2");
  bench.wait(999ms);
  CHECK(bench.directed() == "");
  bench.wait(1ms);
  CHECK(bench.directed() == "3-4");
  CHECK(bench.start() == "0-7");
  bench.wait(1s);
  CHECK(bench.directed() == "3-4");
  bench.started("4-7");
  bench.confirm("3-4");
  bench.wait(10s);
  CHECK(bench.directed() == "");
}

TEST_CASE("a host that confirmed an older revision is told the newer one") {
  CoordinatorBench bench(
      appointment_of(spec_of({{.name = "load", .kind = job::Role::TASK, .count = 2},
                              {.name = "work", .count = 4, .needs = {"load"}}})));
  bench.obey();
  bench.exited("0-1", job::NONE);
  CHECK(bench.last_directive.revision() == 1);
  bench.confirm("1-2", 0);
  bench.wait(1s);
  CHECK(bench.directed() == "1-2");
  bench.confirm("1-2", 1);
  bench.wait(1s);
  CHECK(bench.directed() == "");
}

TEST_CASE("the head is told again until it answers, then now and then") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.wait(1s);
  CHECK(bench.to(cluster::Message::kUpdate) == "0");
  bench.obey();
  bench.wait(1s);
  CHECK(bench.to(cluster::Message::kUpdate) == "0");
  CHECK(bench.last_update.state() == cluster::RUNNING);
  bench.ack();
  bench.wait(9s);
  CHECK(bench.to(cluster::Message::kUpdate) == "");
  bench.wait(1s);
  CHECK(bench.to(cluster::Message::kUpdate) == "0");
}

TEST_CASE("an end request ends the job, a second one with less patience") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.obey();
  bench.request_end(30s);
  CHECK(bench.told_to_end() == "1-4");
  CHECK(bench.last_end.grace_ns() == to_ns(30s));
  CHECK(bench.last_end.signal() == SIGTERM);
  bench.request_end(40s);
  CHECK(bench.told_to_end() == "");
  bench.ended("2");
  bench.request_end(1s);
  CHECK(bench.told_to_end() == "1,3-4");
  CHECK(bench.last_end.grace_ns() == to_ns(1s));
  bench.wait(1s);
  CHECK(bench.told_to_end() == "1,3-4");  // until they say that it is done
  bench.lost("3");
  bench.exited("0-1", job::USER_ERROR);
  bench.ended("1,4");
  CHECK(bench.last_update.state() == cluster::KILLED_BY_USER);
  CHECK(bench.last_update.why() == "because");
  bench.wait(5s);
  CHECK(bench.told_to_end() == "");
}

TEST_CASE("an end that is asked for wins over restarts that wait") {
  CoordinatorBench bench(appointment_of(spec_of({{.count = 8, .delay = 2s}})));
  bench.obey();
  bench.exited("3", job::KILLED);
  bench.request_end(0s);
  bench.wait(10s);
  CHECK(bench.directed() == "");
  bench.ended("1-4");
  CHECK(bench.state() == cluster::KILLED_BY_USER);
}

TEST_CASE("a preemption is announced first, once") {
  job::Spec spec = workers();
  spec.set_notice_signal(SIGUSR1);
  spec.set_notice_ns(to_ns(20s));
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  bench.request_end(3s, true);
  CHECK(bench.directed() == "1-4");
  CHECK(bench.orders.durably);
  CHECK(bench.last_directive.notice() == SIGUSR1);
  CHECK(bench.told_to_end() == "");
  CHECK(bench.state() == cluster::RUNNING);
  CHECK(bench.last_update.end_known());
  bench.confirm("1-3");
  bench.wait(10s);
  CHECK(bench.directed() == "4");  // until it was heard
  bench.confirm("4");
  bench.request_end(3s, true);  // the head asks again
  CHECK(bench.directed() == "");
  bench.wait(10s);
  CHECK(bench.told_to_end() == "1-4");
  CHECK(bench.last_end.grace_ns() == to_ns(3s));
  bench.ended("1-4");
  CHECK(bench.state() == cluster::KILLED_BY_USER);
  CHECK(bench.last_update.why() == "preempted");
}

TEST_CASE("a job that was done before its notice came has succeeded") {
  job::Spec spec = workers();
  spec.set_notice_ns(to_ns(20s));
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  bench.request_end(3s, true);
  bench.exited("0-7", job::NONE);
  bench.ended("1-4");
  CHECK(bench.state() == cluster::SUCCEEDED);
}

// Of a process that had the notice, whatever it returned.
cluster::Row noticed(std::string_view processes, uint64_t epoch) {
  cluster::Row row = row_of(cluster::Row::EXITED, epoch, set(processes));
  row.mutable_exit()->set_by_us(true);
  return row;
}

TEST_CASE("whoever ends within the notice is no failure, and the last of them ends the job") {
  job::Spec spec =
      spec_of({{.name = "data", .kind = job::Role::SERVICE, .count = 1}, {.count = 4}});
  spec.set_notice_ns(to_ns(20s));
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  const uint64_t epoch = bench.coordinator.epoch();
  bench.request_end(3s, true);
  bench.obey();
  bench.report({noticed("1-3", epoch)});
  bench.report({row_of(cluster::Row::STALLED, epoch, set("4"))});
  bench.report({noticed("0", epoch)});
  CHECK(bench.coordinator.epoch() == epoch);
  CHECK(bench.told_to_end() == "");
  bench.wait(5s);
  CHECK(bench.directed() == "");
  bench.report({noticed("4", epoch)});
  CHECK(bench.told_to_end() == "1-2");
  bench.ended("1-2");
  CHECK(bench.state() == cluster::KILLED_BY_USER);
  CHECK(bench.last_update.restarts() == 0);
  CHECK_FALSE(bench.last_update.has_culprit());
}

TEST_CASE("a notice ends at once what waits to be started again") {
  job::Spec spec = spec_of({{.count = 8, .delay = 1h}});
  spec.set_notice_ns(to_ns(20s));
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  bench.exited("3", job::KILLED);
  bench.request_end(3s, true);
  CHECK(bench.told_to_end() == "1-4");
}

TEST_CASE("a coordinator that is read from the log gives the notice its time again") {
  job::Spec spec = workers();
  spec.set_notice_ns(to_ns(20s));
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  bench.request_end(3s, true);
  Coordinator read(bench.coordinator.record(), 1, bench.now);
  const CoordinatorOrders orders = read.take_orders();
  REQUIRE_FALSE(orders.parcels.empty());
  const cluster::Directive& again = orders.parcels.back().message.directive();
  CHECK(again.notice() == SIGTERM);
  cluster::JobReport report;
  *report.add_rows() = row_of(cluster::Row::STARTED, read.epoch(), set("0-7"));
  *report.add_rows() = row_of(cluster::Row::STARTED, read.epoch(), {}, read.nodes());
  report.mutable_rows(1)->set_count(again.revision() + 1);
  read.on_report(report, bench.now);
  read.on_time(bench.now + 19s);
  CHECK(read.state() < cluster::ENDING);
  read.on_time(bench.now + 20s);
  CHECK(read.state() == cluster::ENDING);
}

TEST_CASE("a job whose time is up is ended") {
  job::Spec spec = workers();
  spec.set_timeout_ns(to_ns(60s));
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  bench.wait(59s);
  CHECK(bench.told_to_end() == "");
  bench.wait(1s);
  CHECK(bench.told_to_end() == "1-4");
  bench.ended("1-4");
  CHECK(bench.state() == cluster::TIMED_OUT);
}

TEST_CASE("a second coordinator takes over what runs, and starts nothing twice") {
  CoordinatorBench bench(appointment_of(workers(job::ONE_FOR_ONE), 2, 2));
  CHECK(bench.coordinator.epoch() == epoch_of(2, 1));
  CHECK(bench.orders.durably);
  CHECK(bench.directed() == "1-4");
  CHECK(bench.start() == "");
  CHECK(bench.stop() == "");
  bench.started("0-1,4-7", kFirstEpoch);
  bench.exited("2-3", job::NONE, kFirstEpoch);
  bench.confirm("1-3");
  CHECK(bench.directed() == "");
  bench.confirm("4");
  CHECK(bench.directed() == "");
  CHECK(bench.state() == cluster::RUNNING);
  bench.wait(100s);
  CHECK(bench.directed() == "");
  CHECK(bench.coordinator.epoch() == epoch_of(2, 1));
  bench.exited("0-1,4-7", job::NONE, kFirstEpoch);
  CHECK(bench.told_to_end() == "1-4");
}

TEST_CASE("a second coordinator starts what the first did not") {
  CoordinatorBench bench(appointment_of(workers(), 2, 2));
  bench.confirm("1-4");
  CHECK(bench.directed() == "1-4");
  CHECK(bench.start() == "0-7");
}

TEST_CASE("what the first coordinator had ended is not done for the second") {
  CoordinatorBench bench(appointment_of(workers(), 2, 2));
  cluster::Row row = row_of(cluster::Row::EXITED, kFirstEpoch, set("0-7"), set("1-4"));
  row.mutable_exit()->set_by_us(true);
  bench.report({row});
  bench.confirm("1-4");
  CHECK(bench.told_to_end() == "");
  CHECK(bench.start() == "0-7");
}

TEST_CASE("what an earlier life of a gang has done is not done for a second coordinator") {
  for (const job::Strategy strategy : {job::ONE_FOR_ALL, job::ONE_FOR_ONE}) {
    const job::Spec spec = spec_of({{.count = 4, .strategy = strategy}});
    CoordinatorBench bench(appointment_of(spec, 2, 2));
    const uint64_t given_up = epoch_of(1, 1);
    bench.exited("0-1", job::NONE, given_up);
    bench.confirm("1");
    cluster::Row later = row_of(cluster::Row::STARTED, epoch_of(1, 2), set("2-3"));
    later.set_gang_epoch(epoch_of(1, 2));
    bench.report({std::move(later)});
    bench.confirm("2");
    const bool as_a_whole = strategy == job::ONE_FOR_ALL;
    CHECK(bench.start() == (as_a_whole ? "0-3" : ""));
    CHECK(bench.state() == (as_a_whole ? cluster::RESTARTING : cluster::RUNNING));
  }
}

TEST_CASE("what a grant moves besides is started again too") {
  CoordinatorBench bench(appointment_of(workers(job::ONE_FOR_ONE)));
  bench.obey();
  bench.lost("2");
  CHECK(bench.wanted() == "2-3");
  cluster::Grant grant;
  grant.set_job(7);
  grant.set_term(1);
  *grant.mutable_layout() = bench.coordinator.appointment().layout();
  grant.mutable_layout()->Mutable(0)->set_first_node(11);  // everything
  grant.mutable_layout()->Mutable(0)->set_last_node(14);
  bench.coordinator.on_grant(grant, bench.now);
  bench.listen();
  CHECK(bench.start() == "0-7");
  CHECK(bench.directed() == "11-14");
}

TEST_CASE("failures that a second coordinator hears first of are dealt with when it knows all") {
  CoordinatorBench bench(appointment_of(workers(job::ONE_FOR_ONE), 2, 2));
  bench.exited("3", job::KILLED, kFirstEpoch);
  CHECK(bench.coordinator.epoch() == epoch_of(2, 1));
  bench.started("0-2,4-7", kFirstEpoch);
  bench.confirm("1-4");
  CHECK(bench.coordinator.epoch() > epoch_of(2, 1));
  CHECK(bench.start() == "3");
}

TEST_CASE("a user error that a second coordinator hears of ends the job") {
  CoordinatorBench bench(appointment_of(workers(), 2, 2));
  bench.exited("3", job::USER_ERROR, kFirstEpoch);
  bench.started("0-2,4-7", kFirstEpoch);
  bench.confirm("1-4");
  CHECK(bench.told_to_end() == "1-4");
}

TEST_CASE("a second coordinator gives up hosts that stay silent, or are known to be gone") {
  for (const bool known : {false, true}) {
    cluster::Appointment appointment = appointment_of(workers(), 2, 2);
    if (known) set_pairs(set("2"), appointment.mutable_lost());
    CoordinatorBench bench(appointment);
    CHECK(bench.directed() == (known ? "1,3-4" : "1-4"));
    bench.started("0-1,4-7", kFirstEpoch);
    bench.confirm("1,3-4");
    if (!known) {
      CHECK(bench.state() == cluster::STARTING);
      bench.wait(2999ms);
      CHECK(bench.state() == cluster::STARTING);
      bench.wait(1ms);
    }
    CHECK(bench.state() == cluster::WAITING_FOR_HOSTS);
    CHECK(bench.wanted() == "2-3");
    CHECK(bench.stop() == "0-7");
    CHECK(bench.last_update.culprit().exit().error() == job::HOST_LOST);
  }
}

TEST_CASE("a coordinator that was read from the log goes on with its epoch") {
  CoordinatorBench first(appointment_of(workers()));
  CHECK(first.start() == "0-7");
  const cluster::CoordinatorRecord record = first.coordinator.record();
  Coordinator second(record, 1, first.now);
  CHECK(second.epoch() == first.coordinator.epoch());
  const CoordinatorOrders orders = second.take_orders();
  REQUIRE(orders.parcels.size() == 1);
  CHECK(orders.parcels[0].to.text() == "1-4");
  const cluster::Directive& again = orders.parcels[0].message.directive();
  CHECK(set_from(again.start()).value().text() == "0-7");
  CHECK(again.revision() == record.revision() + 1);
  CHECK(orders.durably);
}

TEST_CASE("a coordinator that was read from the log while its job ended goes on ending it") {
  CoordinatorBench first(appointment_of(workers()));
  first.obey();
  first.exited("0-7", job::NONE);
  const cluster::CoordinatorRecord record = first.coordinator.record();
  CHECK(record.final_state() == cluster::SUCCEEDED);
  Coordinator second(record, 1, first.now);
  const CoordinatorOrders orders = second.take_orders();
  REQUIRE_FALSE(orders.parcels.empty());
  CHECK(orders.parcels[0].message.has_end());
}

TEST_CASE("hosts that are none of the job's are told to end it") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.obey();
  bench.report({row_of(cluster::Row::STARTED, kFirstEpoch, set("2-3"), set("1-2,8-9"))});
  CHECK(bench.told_to_end() == "8-9");
  CHECK(bench.state() == cluster::RUNNING);
}

TEST_CASE("a second coordinator does not take a stranger's processes for its own") {
  cluster::Appointment appointment = appointment_of(workers(job::ONE_FOR_ONE), 2, 2);
  CoordinatorBench bench(appointment);
  // Host 9 was given up; its processes were to run on host 2, which has not begun.
  bench.report({row_of(cluster::Row::STARTED, kFirstEpoch, set("2-3"), set("9"))});
  CHECK(bench.told_to_end() == "9");
  bench.report({row_of(cluster::Row::STARTED, kFirstEpoch, set("0-1,4-7"), set("1,3-4"))});
  bench.confirm("1-4");
  CHECK(bench.start() == "2-3");
}

TEST_CASE("what could not be ended is told to the head, and keeps nothing from its end") {
  CoordinatorBench bench(appointment_of(workers()));
  bench.obey();
  bench.request_end(0s);
  bench.ended("1-3");
  cluster::Row row = row_of(cluster::Row::LEFT_BEHIND, 0, {}, set("4"));
  row.set_message("process 1234 does not go");
  bench.report({row});
  CHECK(bench.state() == cluster::KILLED_BY_USER);
  REQUIRE(bench.last_update.leftovers_size() == 1);
  CHECK(bench.last_update.leftovers(0).message() == "process 1234 does not go");
}

}  // namespace
}  // namespace tutti
