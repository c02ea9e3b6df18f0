#include "cli/job_processes.h"

#include <doctest/doctest.h>

namespace tutti::cli {
namespace {

void add_role(cluster::JobInfo& job, const char* name, uint32_t count) {
  cluster::RoleInfo& role = *job.add_roles();
  role.set_name(name);
  role.set_count(count);
}

cluster::JobInfo two_roles() {
  cluster::JobInfo job;
  job.set_job(7);
  add_role(job, "data", 2);
  add_role(job, "worker", 4);
  return job;
}

TEST_CASE("ranks of a role become numbers of processes") {
  CHECK(parse_processes("worker/0,2-3", two_roles())->text() == "2,4-5");
  CHECK(parse_processes("data/1", two_roles())->text() == "1");
  CHECK(parse_processes("worker", two_roles())->text() == "2-5");
}

TEST_CASE("a job of one role needs no name of it") {
  cluster::JobInfo job;
  add_role(job, "rank", 4);
  CHECK(parse_processes("1-2", job)->text() == "1-2");
  CHECK(parse_processes("rank/3", job)->text() == "3");
}

TEST_CASE("what is no process is refused with what to write") {
  CHECK(parse_processes("3", two_roles()).error().text() ==
        "job 7 has several roles (data, worker); write ROLE/RANK, as data/3");
  CHECK(parse_processes("wroker/1", two_roles()).error().text() ==
        "job 7 has no role 'wroker'; did you mean 'worker'?");
  CHECK(parse_processes("worker/2-4", two_roles()).error().text() ==
        "role worker has ranks 0 to 3, not 2-4");
  CHECK_FALSE(parse_processes("worker/x", two_roles()));
  CHECK_FALSE(parse_processes("", two_roles()));
}

TEST_CASE("processes are called by role and rank") {
  CHECK(process_name(4, two_roles()) == "worker 2");
  CHECK(process_name(9, two_roles()) == "process 9");
}

}  // namespace
}  // namespace tutti::cli
