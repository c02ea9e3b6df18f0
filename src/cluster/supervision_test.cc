#include "cluster/supervision.h"

#include <doctest/doctest.h>

#include <csignal>
#include <set>
#include <vector>

#include "cluster/job_defaults.h"
#include "cluster/job_limits.h"

namespace tutti {
namespace {

job::ErrorClass class_of(const Exit& exit) { return classify_exit(exit, false, false); }
Exit returned(int code) { return {.code = code}; }
Exit killed_by(int signal) { return {.signal = signal}; }

Instant at(Duration since_start) { return Instant(1000h + since_start); }

job::Budget budget_of(uint32_t restarts, Duration period) {
  job::Budget budget;
  budget.set_error(job::KILLED);
  budget.set_restarts(restarts);
  budget.set_period_ns(to_ns(period));
  budget.set_delay_ns(to_ns(1s));
  budget.set_longest_delay_ns(to_ns(5s));
  return budget;
}

using Wait = std::optional<Duration>;

TEST_CASE("a process that returned 0 has no error, whatever else is known") {
  CHECK(class_of(returned(0)) == job::NONE);
  CHECK(classify_exit(returned(0), true, true) == job::NONE);
}

TEST_CASE("a process that returned anything else, or crashed by itself, has a user error") {
  for (const int code : {1, 2, 126, 127, 128, 255})
    CHECK(class_of(returned(code)) == job::USER_ERROR);
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGPIPE, SIGXCPU})
    CHECK(class_of(killed_by(signal)) == job::USER_ERROR);
}

TEST_CASE("a process that a signal from outside ended was killed") {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGRTMIN})
    CHECK(class_of(killed_by(signal)) == job::KILLED);
}

TEST_CASE("a shell that tells the signal of what it ran counts as killed by it") {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT, SIGHUP})
    CHECK(class_of(returned(128 + signal)) == job::KILLED);
  CHECK(class_of(returned(128 + SIGSEGV)) == job::USER_ERROR);
  CHECK(class_of(returned(128 + SIGUSR1)) == job::USER_ERROR);
}

TEST_CASE("evidence of memory explains every failure but one that we asked for") {
  CHECK(classify_exit(killed_by(SIGKILL), false, true) == job::OUT_OF_MEMORY);
  CHECK(classify_exit(returned(1), false, true) == job::OUT_OF_MEMORY);
  CHECK(classify_exit(killed_by(SIGKILL), true, true) == job::NONE);
}

TEST_CASE("a process that we ended has no error of its own") {
  CHECK(classify_exit(killed_by(SIGTERM), true, false) == job::NONE);
  CHECK(classify_exit(returned(1), true, false) == job::NONE);
}

TEST_CASE("every class of errors has a text of its own") {
  std::set<std::string_view> texts;
  for (int error = 0; error < job::ErrorClass_ARRAYSIZE; ++error)
    texts.insert(error_class_text(static_cast<job::ErrorClass>(error)));
  CHECK(texts.size() == job::ErrorClass_ARRAYSIZE);
  CHECK(!texts.contains("unknown error"));
  CHECK(error_class_text(job::OUT_OF_MEMORY) == "out of memory");
  CHECK(error_class_text(static_cast<job::ErrorClass>(99)) == "unknown error");
}

TEST_CASE("each wait is twice the one before, up to the longest") {
  RestartBudget budget(budget_of(5, 1h));
  CHECK(budget.ask(at(0s)) == Wait(1s));
  CHECK(budget.ask(at(2s)) == Wait(2s));
  CHECK(budget.ask(at(5s)) == Wait(4s));
  CHECK(budget.ask(at(10s)) == Wait(5s));
  CHECK(budget.ask(at(20s)) == Wait(5s));
  CHECK(budget.ask(at(30s)) == std::nullopt);
}

TEST_CASE("restarts come back as the period slides past those that were taken") {
  RestartBudget budget(budget_of(2, 60s));
  CHECK(budget.ask(at(0s)));
  CHECK(budget.ask(at(40s)));
  CHECK(!budget.ask(at(59s)));
  CHECK(budget.ask(at(60s)) == Wait(4s));  // that of 0 s has gone, and there was no quiet
  CHECK(!budget.ask(at(99s)));
  CHECK(budget.ask(at(100s)));
}

TEST_CASE("a period of quiet makes the wait short again") {
  RestartBudget budget(budget_of(3, 60s));
  CHECK(budget.ask(at(0s)) == Wait(1s));
  CHECK(budget.ask(at(10s)) == Wait(2s));
  CHECK(budget.ask(at(70s)) == Wait(1s));
}

TEST_CASE("being refused takes nothing") {
  RestartBudget budget(budget_of(1, 60s));
  CHECK(budget.ask(at(0s)));
  for (int second = 1; second < 60; ++second) CHECK(!budget.ask(at(std::chrono::seconds(second))));
  CHECK(budget.ask(at(60s)));
}

TEST_CASE("a budget without a period is for the whole life of the job") {
  RestartBudget budget(budget_of(2, 0s));
  CHECK(budget.ask(at(0s)) == Wait(1s));
  CHECK(budget.ask(at(10'000h)) == Wait(2s));
  CHECK(!budget.ask(at(20'000h)));
}

TEST_CASE("always is always, with the same waits and the same quiet") {
  RestartBudget budget(budget_of(kAlwaysRestart, 60s));
  CHECK(budget.ask(at(0s)) == Wait(1s));
  CHECK(budget.ask(at(50s)) == Wait(2s));
  for (int i = 0; i < 1000; ++i) CHECK(budget.ask(at(60s)));
  CHECK(budget.ask(at(110s)) == Wait(5s));
  CHECK(budget.ask(at(170s)) == Wait(1s));
}

TEST_CASE("no budget, or one of 0, is no restart") {
  CHECK(!RestartBudget(budget_of(0, 60s)).ask(at(0s)));
  RestartBudgets budgets{job::Role()};
  CHECK(!budgets.ask(job::KILLED, at(0s)));
}

Wait wait_of(const std::optional<Restart>& restart) {
  return restart ? Wait(restart->delay) : std::nullopt;
}

TEST_CASE("classes of errors have budgets of their own") {
  RestartBudgets budgets(default_role(job::Role::GANG));
  CHECK(wait_of(budgets.ask(job::OUT_OF_MEMORY, at(0s))) == Wait(1s));
  CHECK(!budgets.ask(job::OUT_OF_MEMORY, at(1s)));
  CHECK(wait_of(budgets.ask(job::KILLED, at(2s))) == Wait(1s));
  CHECK(!budgets.ask(job::USER_ERROR, at(3s)));
  CHECK(!budgets.ask(job::NONE, at(4s)));
}

TEST_CASE(
    "when a class is used up the next wider scope is taken, and what is narrower begins anew") {
  job::Role role;
  *role.add_budgets() = budget_of(1, 0s);
  for (const job::Scope scope : {job::JOB, job::HOST}) {
    job::Escalation& escalation = *role.add_escalate();
    escalation.set_scope(scope);
    escalation.set_restarts(1);
  }
  RestartBudgets budgets(role);
  const auto scopes = [&](int count) {
    std::vector<int> taken;
    for (int i = 0; i < count; ++i) {
      const auto restart = budgets.ask(job::KILLED, at(0s));
      taken.push_back(restart ? restart->scope : -1);
    }
    return taken;
  };
  CHECK(scopes(4) == std::vector<int>{job::PROCESS, job::HOST, job::PROCESS, job::JOB});
  CHECK(scopes(4) == std::vector<int>{job::PROCESS, job::HOST, job::PROCESS, -1});
  CHECK_FALSE(budgets.ask(job::USER_ERROR, at(0s)));
  budgets.begin_anew();  // for another role's sake: its own restart of the job stays taken
  CHECK(scopes(4) == std::vector<int>{job::PROCESS, job::HOST, job::PROCESS, -1});
}

TEST_CASE("a service is started again whatever its exit") {
  RestartBudgets budgets(default_role(job::Role::SERVICE));
  for (const job::ErrorClass error :
       {job::NONE, job::USER_ERROR, job::KILLED, job::OUT_OF_MEMORY, job::HOST_LOST, job::HANG}) {
    CHECK(wait_of(budgets.ask(error, at(0s))) == Wait(500ms));
    for (int i = 0; i < 100; ++i) CHECK(budgets.ask(error, at(1s)));
    CHECK(wait_of(budgets.ask(error, at(2s))) == Wait(30s));
  }
}

}  // namespace
}  // namespace tutti
