// What a coordinator does when restarts are used up, and what it says of those it makes.
#include <map>

#include "cluster/coordinator_test.h"

namespace tutti {
namespace {

constexpr uint64_t kFirstEpoch = epoch_of(1, 1);

// Eight workers on hosts 1 to 4 that may be started again once each, and then more of them.
job::Spec escalating(std::vector<std::pair<job::Scope, uint32_t>> scopes) {
  job::Spec spec = spec_of(
      {{.count = 8, .strategy = job::ONE_FOR_ONE, .restarts = 1, .delay = 1s},
       {.name = "store", .kind = job::Role::SERVICE, .count = 1, .strategy = job::ONE_FOR_ONE}});
  spec.set_strategy(job::ONE_FOR_ONE);
  for (const auto& [scope, restarts] : scopes) {
    job::Escalation& escalation = *spec.mutable_roles(0)->add_escalate();
    escalation.set_scope(scope);
    escalation.set_restarts(restarts);
  }
  return spec;
}

// A worker is killed: gives who is started again, after a wait.
std::string killed(CoordinatorBench& bench, std::string_view process) {
  const auto number = set(process).front();
  const uint64_t epoch = bench.lives.contains(number) ? bench.lives[number] : kFirstEpoch;
  bench.exited(process, job::KILLED, epoch);
  if (bench.state() == cluster::ENDING) return "the job ends";
  bench.wait(1h);
  const RangeSet started = set(bench.start());
  for (const ProcessId one : started.members()) bench.lives[one] = bench.coordinator.epoch();
  bench.obey();
  return started.text();
}

TEST_CASE(
    "when restarts are used up the next wider scope is started again, and the job fails last") {
  CoordinatorBench bench(
      appointment_of(escalating({{job::HOST, 1}, {job::ROLE, 1}, {job::JOB, 1}})));
  bench.obey();
  CHECK(killed(bench, "3") == "3");
  CHECK(bench.last_update.why() == "");
  CHECK(killed(bench, "3") == "2-3");
  CHECK(bench.state() == cluster::RUNNING);
  CHECK(bench.last_update.why() ==
        "killed; no restarts left for work 3; restarted as a whole: role 'work' on its host (1 of "
        "1)");
  CHECK(killed(bench, "3") == "3");  // those of processes begin anew
  CHECK(killed(bench, "3") == "0-7");
  CHECK(bench.last_update.why().ends_with("restarted as a whole: role 'work' (1 of 1)"));
  CHECK(killed(bench, "3") == "3");
  CHECK(killed(bench, "5") == "4-5");
  CHECK(killed(bench, "5") == "5");
  CHECK(killed(bench, "5") == "0-8");
  CHECK(bench.last_update.why().ends_with("restarted as a whole: the job (1 of 1)"));
  int restarts = 0;
  while (killed(bench, "1") != "the job ends") REQUIRE(++restarts < 10);
  CHECK(restarts == 7);  // 1; its host; 1; its role; 1; its host; 1
  bench.ended("1-4");
  CHECK(bench.last_update.state() == cluster::FAILED);
  CHECK(bench.last_update.why() ==
        "killed; no restarts left for this kind of error, and those of its host and role and job "
        "are used up");
}

TEST_CASE("scopes that a role does not name are passed over, and user errors do not escalate") {
  CoordinatorBench bench(appointment_of(escalating({{job::JOB, 2}})));
  bench.obey();
  CHECK(killed(bench, "3") == "3");
  CHECK(killed(bench, "3") == "0-8");
  bench.exited("3", job::USER_ERROR);
  CHECK(bench.state() == cluster::ENDING);
}

TEST_CASE("a wider scope waits longer each time, and forgets after a period") {
  job::Spec spec = escalating({{job::ROLE, 2}});
  for (job::Budget& budget : *spec.mutable_roles(0)->mutable_budgets())
    budget.set_period_ns(to_ns(24h));
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  CHECK(killed(bench, "3") == "3");
  CHECK(killed(bench, "3") == "0-7");
  CHECK(killed(bench, "3") == "3");
  bench.exited("3", job::KILLED);
  bench.confirm("1-4");
  bench.wait(1999ms);
  CHECK(bench.start() == "");
  bench.wait(1ms);
  CHECK(bench.start() == "0-7");
  bench.obey();
  for (ProcessId one = 0; one < 8; ++one) bench.lives[one] = bench.coordinator.epoch();
  bench.wait(25h);
  CHECK(killed(bench, "3") == "3");
  CHECK(killed(bench, "3") == "0-7");
}

// What it counted goes with the job, to one that is read from the log and to one that takes over.
TEST_CASE("a coordinator that comes after another goes on counting its restarts") {
  CoordinatorBench first(appointment_of(escalating({{job::HOST, 2}})));
  first.obey();
  CHECK(killed(first, "3") == "3");
  CHECK(killed(first, "3") == "2-3");
  CHECK(killed(first, "3") == "3");
  CHECK(first.last_update.restarts() == 3);
  const uint64_t life = first.lives[3];

  CoordinatorBench again(first.coordinator.record());
  cluster::Appointment second = appointment_of(escalating({{job::HOST, 2}}), 2, 2);
  second.set_restarts(first.last_update.restarts());
  *second.mutable_taken() = first.last_update.taken();
  CoordinatorBench other(second);
  for (CoordinatorBench* bench : {&again, &other}) {
    bench->report({row_of(cluster::Row::STARTED, kFirstEpoch, set("0-2,4-8")),
                   row_of(cluster::Row::STARTED, life, set("3"))});
    bench->confirm("1-4");
    REQUIRE(bench->state() == cluster::RUNNING);
    bench->lives[3] = life;
    CHECK(killed(*bench, "3") == "2-3");
    CHECK(bench->last_update.why().ends_with("role 'work' on its host (2 of 2)"));
    CHECK(bench->last_update.restarts() == 4);
    CHECK(killed(*bench, "3") == "3");
    CHECK(killed(*bench, "3") == "the job ends");
  }
}

TEST_CASE("why says that a service returned 0 and is started again, and how often") {
  job::Spec spec = spec_of({{.name = "data", .kind = job::Role::SERVICE, .count = 1}});
  job::Budget& budget = *spec.mutable_roles(0)->add_budgets();
  budget.set_error(job::NONE);
  budget.set_restarts(kAlwaysRestart);
  budget.set_delay_ns(to_ns(500ms));
  budget.set_longest_delay_ns(to_ns(30s));
  CoordinatorBench bench(appointment_of(spec));
  bench.obey();
  bench.exited("0", job::NONE);
  CHECK(bench.state() == cluster::RESTARTING);
  CHECK(bench.last_update.why() ==
        "data 0 ended with code 0 and is started again whenever it ends: 1 time so far");
  bench.wait(500ms);
  bench.obey();
  CHECK(bench.state() == cluster::RUNNING);
  bench.exited("0", job::NONE);
  CHECK(bench.last_update.why().ends_with("2 times so far"));
  bench.wait(999ms);
  CHECK(bench.start() == "");
  bench.wait(1ms);
  CHECK(bench.start() == "0");
}

}  // namespace
}  // namespace tutti
