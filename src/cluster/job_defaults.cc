#include "cluster/job_defaults.h"

#include "base/units.h"
#include "cluster/job_limits.h"

namespace tutti {
namespace {

struct Pace {
  Duration period;
  Duration delay;
  Duration longest_delay;
};

void allow_restarts(job::Role& role, job::ErrorClass error, uint32_t restarts, const Pace& pace) {
  job::Budget& budget = *role.add_budgets();
  budget.set_error(error);
  budget.set_restarts(restarts);
  budget.set_period_ns(to_ns(pace.period));
  budget.set_delay_ns(to_ns(pace.delay));
  budget.set_longest_delay_ns(to_ns(pace.longest_delay));
}

// Of what has an end of its own: what was not its fault is tried again. A bug would only come back.
void allow_restarts_of_work(job::Role& role) {
  const Pace pace{.period = 1h, .delay = 1s, .longest_delay = 1min};
  allow_restarts(role, job::KILLED, 3, pace);
  allow_restarts(role, job::OUT_OF_MEMORY, 1, pace);
  allow_restarts(role, job::HOST_LOST, 10, pace);
  allow_restarts(role, job::HANG, 3, pace);
}

// Of what is there until the job ends. A command that cannot be executed stays so.
void allow_restarts_of_helpers(job::Role& role) {
  const Pace pace{.period = 10min, .delay = 500ms, .longest_delay = 30s};
  for (const job::ErrorClass error :
       {job::NONE, job::USER_ERROR, job::KILLED, job::OUT_OF_MEMORY, job::HOST_LOST, job::HANG})
    allow_restarts(role, error, kAlwaysRestart, pace);
  allow_restarts(role, job::NOT_STARTED, 3, pace);
}

}  // namespace

job::Spec default_job() {
  job::Spec spec;
  spec.set_strategy(job::ONE_FOR_ONE);
  spec.set_grace_ns(to_ns(5s));
  spec.set_notice_ns(to_ns(30s));
  return spec;
}

job::Role default_role(job::Role::Kind kind) {
  job::Role role;
  role.set_kind(kind);
  role.set_strategy(kind == job::Role::GANG ? job::ONE_FOR_ALL : job::ONE_FOR_ONE);
  if (kind == job::Role::GANG || kind == job::Role::TASK) {
    allow_restarts_of_work(role);
  } else {
    allow_restarts_of_helpers(role);
  }
  if (kind != job::Role::SIDECAR) {
    role.set_count(1);
    role.set_slots(1);
  }
  return role;
}

job::Health default_health() {
  job::Health health;
  health.set_every_ns(to_ns(5s));
  health.set_timeout_ns(to_ns(2s));
  health.set_failures(3);
  health.set_start_ns(to_ns(1min));
  return health;
}

}  // namespace tutti
