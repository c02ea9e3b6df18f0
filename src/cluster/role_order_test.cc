#include "cluster/role_order.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "cluster/job_defaults.h"

namespace tutti {
namespace {

using Roles = std::vector<size_t>;

void add_role(job::Spec& spec, std::string name, const std::vector<std::string>& needs = {}) {
  job::Role& role = *spec.add_roles();
  role = default_role(job::Role::GANG);
  role.set_name(std::move(name));
  for (const std::string& need : needs) role.add_needs(need);
}

void add_sidecar(job::Spec& spec, std::string name, std::string beside) {
  job::Role& role = *spec.add_roles();
  role = default_role(job::Role::SIDECAR);
  role.set_name(std::move(name));
  role.set_beside(std::move(beside));
}

// 0 watcher (beside worker), 1 data, 2 worker, 3 shipper (beside data), 4 eval
job::Spec five_roles(job::Strategy strategy) {
  job::Spec spec;
  spec.set_strategy(strategy);
  add_sidecar(spec, "watcher", "worker");
  add_role(spec, "data");
  add_role(spec, "worker", {"data"});
  add_sidecar(spec, "shipper", "data");
  add_role(spec, "eval", {"worker", "data", "data"});
  return spec;
}

TEST_CASE("a sidecar has as many processes as the role it is beside") {
  job::Spec spec = five_roles(job::ONE_FOR_ONE);
  spec.mutable_roles(2)->set_count(7);
  CHECK(process_count(spec, 0) == 7);
  CHECK(process_count(spec, 2) == 7);
  CHECK(process_count(spec, 3) == 1);
}

TEST_CASE("a ring of needs is found, without the roles that only lead into it") {
  job::Spec spec;
  add_role(spec, "lead", {"a"});
  add_role(spec, "free");
  add_role(spec, "c", {"free", "a"});
  add_role(spec, "a", {"b"});
  add_role(spec, "b", {"c"});
  CHECK(needs_cycle(spec) == Roles{3, 4, 2});
  spec.mutable_roles(4)->clear_needs();
  CHECK(needs_cycle(spec).empty());
}

TEST_CASE("a role that needs itself is a ring of one") {
  job::Spec spec;
  add_role(spec, "a", {"a"});
  CHECK(needs_cycle(spec) == Roles{0});
}

TEST_CASE("one for one touches the failed role and its sidecars") {
  const job::Spec spec = five_roles(job::ONE_FOR_ONE);
  CHECK(affected_roles(spec, 1) == Roles{1, 3});
  CHECK(affected_roles(spec, 2) == Roles{0, 2});
  CHECK(affected_roles(spec, 4) == Roles{4});
}

TEST_CASE("a sidecar that fails leaves its role alone") {
  CHECK(affected_roles(five_roles(job::ONE_FOR_ONE), 0) == Roles{0});
  CHECK(affected_roles(five_roles(job::REST_FOR_ONE), 3) == Roles{3, 4});
}

TEST_CASE("one for all touches every role") {
  CHECK(affected_roles(five_roles(job::ONE_FOR_ALL), 3) == Roles{0, 1, 2, 3, 4});
}

TEST_CASE("rest for one touches what was written later, and the sidecars of that") {
  const job::Spec spec = five_roles(job::REST_FOR_ONE);
  CHECK(affected_roles(spec, 1) == Roles{0, 1, 2, 3, 4});
  CHECK(affected_roles(spec, 2) == Roles{0, 2, 3, 4});
  CHECK(affected_roles(spec, 4) == Roles{4});
}

TEST_CASE("within a role the strategy says which processes go") {
  CHECK(affected_processes(job::ONE_FOR_ALL, 3, 8) == ProcessRange{0, 8});
  CHECK(affected_processes(job::ONE_FOR_ONE, 3, 8) == ProcessRange{3, 4});
  CHECK(affected_processes(job::REST_FOR_ONE, 3, 8) == ProcessRange{3, 8});
  CHECK(affected_processes(job::REST_FOR_ONE, 7, 8) == ProcessRange{7, 8});
}

}  // namespace
}  // namespace tutti
