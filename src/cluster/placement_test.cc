#include "cluster/placement.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

namespace tutti {
namespace {

job::Role* add_role(job::Spec& spec, uint32_t count, uint32_t slots = 1, uint32_t per_host = 0) {
  job::Role* role = spec.add_roles();
  role->set_name("role" + std::to_string(spec.roles_size()));
  role->set_count(count);
  role->set_slots(slots);
  role->set_per_host(per_host);
  return role;
}
job::Spec one_role(uint32_t count, uint32_t slots = 1, uint32_t per_host = 0) {
  job::Spec spec;
  add_role(spec, count, slots, per_host);
  return spec;
}

// Hosts 1 to count, alive.
Placement hosts(uint32_t count, uint32_t slots) {
  Placement placement;
  for (NodeId node = 1; node <= count; ++node) {
    placement.set_host(node, slots);
    placement.set_alive(node, true);
  }
  return placement;
}

uint64_t all_free(const Placement& placement) {
  uint64_t free = 0;
  for (const NodeId node : placement.alive().members()) free += placement.free(node);
  CHECK(placement.all_slots() - placement.all_taken() == free);
  return free;
}

RangeSet set(std::string_view text) { return RangeSet::parse(text).value(); }

NodeId place_of(const job::Spec& spec, const Segments& layout, ProcessId process) {
  return node_of(JobNumbers(spec), layout, process).value_or(kHead);
}

// Everything is somewhere, hosts have room for what they have, and roles keep to per_host.
void check_sound(const job::Spec& spec, const Segments& layout) {
  const JobNumbers numbers(spec);
  CHECK(check_layout(numbers, layout).has_value());
  std::map<std::pair<size_t, NodeId>, uint32_t> counts;
  for (ProcessId process = 0; process < numbers.size(); ++process) {
    const size_t role = numbers.role_of(process);
    const uint32_t count = ++counts[{role, place_of(spec, layout, process)}];
    const uint32_t most = spec.roles(static_cast<int>(role)).per_host();
    if (most != 0) CHECK(count <= most);
  }
}

TEST_CASE("neighbours get the processes in order, in one segment") {
  Placement placement = hosts(1000, 8);
  const job::Spec spec = one_role(1001 * 7);
  const Segments layout = placement.place(spec).value();
  check_sound(spec, layout);
  REQUIRE(layout.size() == 1);
  CHECK(layout[0].first_node() == 1);
  CHECK(layout[0].last_node() == 876);  // the last one has seven
  CHECK(layout[0].per_node() == 8);
  CHECK(placement.free(875) == 0);
  CHECK(placement.free(876) == 1);
  CHECK(placement.free(877) == 8);
}

TEST_CASE("all processes have a place, or none takes room") {
  Placement placement = hosts(4, 2);
  const auto refused = placement.place(one_role(9));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == Code::exhausted);
  CHECK(all_free(placement) == 8);
  job::Spec two = one_role(7);
  add_role(two, 2);
  CHECK_FALSE(placement.place(two).has_value());
  CHECK(all_free(placement) == 8);
  CHECK(placement.place(one_role(8)).has_value());
  CHECK(all_free(placement) == 0);
  CHECK_FALSE(placement.place(one_role(1)).has_value());
}

TEST_CASE("processes that take several slots are not cut in two") {
  Placement placement = hosts(3, 8);
  const job::Spec spec = one_role(6, 3);
  const Segments layout = placement.place(spec).value();
  check_sound(spec, layout);
  for (const NodeId node : {1U, 2U, 3U}) CHECK(placement.free(node) == 2);
  CHECK_FALSE(placement.place(one_role(1, 3)).has_value());
  CHECK(placement.place(one_role(1, 2)).has_value());
}

TEST_CASE("no host gets more of a role than per_host, whatever room it has") {
  Placement placement = hosts(5, 8);
  const job::Spec spec = one_role(9, 1, 2);
  const Segments layout = placement.place(spec).value();
  check_sound(spec, layout);
  CHECK(nodes_of(layout) == set("1-5"));
  CHECK(layout.size() == 1);
  CHECK_FALSE(placement.place(one_role(11, 1, 2)).has_value());
}

TEST_CASE("processes without slots take no room, and go where none is left") {
  Placement placement = hosts(2, 1);
  CHECK(placement.place(one_role(2)).has_value());
  const job::Spec spec = one_role(100, 0);
  const Segments layout = placement.place(spec).value();
  check_sound(spec, layout);
  CHECK(nodes_of(layout) == set("1"));
  const job::Spec spread = one_role(2, 0, 1);
  CHECK(nodes_of(placement.place(spread).value()) == set("1-2"));
  CHECK_FALSE(placement.place(one_role(3, 0, 1)).has_value());
}

TEST_CASE("roles of a job share hosts, and sidecars need no place of their own") {
  Placement placement = hosts(2, 4);
  job::Spec spec = one_role(3);
  add_role(spec, 4);
  job::Role* sidecar = add_role(spec, 0);
  sidecar->set_kind(job::Role::SIDECAR);
  sidecar->set_beside("role2");
  const Segments layout = placement.place(spec).value();
  check_sound(spec, layout);
  CHECK(place_of(spec, layout, 3) == 1);
  CHECK(place_of(spec, layout, 6) == 2);
  CHECK(place_of(spec, layout, 10) == 2);  // beside 6
  CHECK(all_free(placement) == 1);
}

TEST_CASE("hosts that are gone have no room until they are back, with what was taken") {
  Placement placement = hosts(2, 4);
  const job::Spec spec = one_role(2);
  const Segments layout = placement.place(spec).value();
  placement.set_alive(1, false);
  CHECK_FALSE(placement.is_alive(1));
  CHECK(placement.free(1) == 0);
  CHECK_FALSE(placement.place(one_role(5)).has_value());
  placement.set_alive(1, true);
  CHECK(placement.free(1) == 2);
  CHECK(placement.place(one_role(6)).has_value());
  placement.give_back(spec, layout, nodes_of(layout));
  CHECK(placement.free(1) == 2);
}

TEST_CASE("room given back at a host that is gone is there when it is back") {
  Placement placement = hosts(1, 4);
  const job::Spec spec = one_role(4);
  const Segments layout = placement.place(spec).value();
  placement.set_alive(1, false);
  placement.give_back(spec, layout, nodes_of(layout));
  CHECK_FALSE(placement.place(spec).has_value());
  placement.set_alive(1, true);
  CHECK(placement.place(spec).has_value());
}

TEST_CASE("room of some hosts can be given back, and the rest later") {
  Placement placement = hosts(3, 2);
  const job::Spec spec = one_role(6);
  const Segments layout = placement.place(spec).value();
  placement.give_back(spec, layout, RangeSet(1, 2));
  CHECK(placement.free(2) == 2);
  CHECK(placement.free(3) == 0);
  placement.give_back(spec, layout, RangeSet(3));
  CHECK(placement.place(spec).has_value());
}

TEST_CASE("a host that says another number of slots has that many") {
  Placement placement = hosts(1, 4);
  const job::Spec spec = one_role(3);
  const Segments layout = placement.place(spec).value();
  placement.set_host(1, 2);  // fewer than are taken
  CHECK(placement.free(1) == 0);
  CHECK_FALSE(placement.place(one_role(1)).has_value());
  placement.give_back(spec, layout, nodes_of(layout));
  CHECK(placement.free(1) == 2);
  CHECK(placement.place(one_role(2)).has_value());
}

TEST_CASE("room that a log says is taken is not given to others") {
  Placement before = hosts(3, 2);
  const job::Spec spec = one_role(3);
  const Segments layout = before.place(spec).value();
  Placement after;
  after.take(spec, layout, nodes_of(layout));  // of hosts nobody has heard of yet
  for (NodeId node = 1; node <= 3; ++node) {
    after.set_host(node, 2);
    after.set_alive(node, true);
  }
  CHECK(all_free(after) == 3);
  CHECK(after.free(1) == 0);
  CHECK(after.free(2) == 1);
}

TEST_CASE("a lost host's processes move, and all others stay") {
  Placement placement = hosts(6, 2);
  const job::Spec spec = one_role(8);
  const Segments layout = placement.place(spec).value();
  placement.set_alive(2, false);
  const Segments next = placement.replace(spec, layout, set("2-3")).value();
  check_sound(spec, next);
  for (const ProcessId process : {0U, 1U, 4U, 5U, 6U, 7U})
    CHECK(place_of(spec, next, process) == place_of(spec, layout, process));
  for (const ProcessId process : {2U, 3U}) CHECK(place_of(spec, next, process) == 5);
  CHECK(placement.free(5) == 0);
  CHECK(placement.free(6) == 2);
  placement.set_alive(2, true);
  CHECK(placement.free(2) == 2);
}

TEST_CASE("when there is no room to move to, everything stays taken as it was") {
  Placement placement = hosts(3, 2);
  const job::Spec spec = one_role(5);
  const Segments layout = placement.place(spec).value();
  placement.set_alive(1, false);
  const auto refused = placement.replace(spec, layout, set("0-1"));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == Code::exhausted);
  CHECK(placement.free(3) == 1);
  placement.set_alive(1, true);
  CHECK(placement.free(1) == 0);
}

TEST_CASE("what moves takes no room of what stays, of any role") {
  Placement placement;
  placement.set_host(1, 2);
  placement.set_host(2, 1);
  for (const NodeId node : {1U, 2U}) placement.set_alive(node, true);
  job::Spec spec = one_role(2, 1, 1);  // one on each
  add_role(spec, 1);                   // on host 1
  const Segments layout = placement.place(spec).value();
  REQUIRE(place_of(spec, layout, 2) == 1);
  placement.set_alive(2, false);
  spec.mutable_roles(0)->set_per_host(0);
  CHECK_FALSE(placement.replace(spec, layout, set("1")).has_value());
}

TEST_CASE("what moves keeps to per_host too") {
  Placement placement = hosts(3, 8);
  const job::Spec spec = one_role(2, 1, 1);
  const Segments layout = placement.place(spec).value();
  placement.set_alive(2, false);
  const Segments next = placement.replace(spec, layout, set("1")).value();
  check_sound(spec, next);
  CHECK(place_of(spec, next, 1) == 3);
}

TEST_CASE("layouts of what moved stay compact") {
  Placement placement = hosts(1001, 8);
  const job::Spec spec = one_role(8000);
  const Segments layout = placement.place(spec).value();
  CHECK(layout.size() == 1);
  placement.set_alive(500, false);
  const Segments next = placement.replace(spec, layout, set("3992-3999")).value();
  check_sound(spec, next);
  CHECK(next.size() <= 3);
}

// Draws jobs, places, moves and ends them, and compares with plain counting.
TEST_CASE("whatever comes and goes, no host has more than its slots, and in the end all is free") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 draw(seed);
    const auto below = [&](uint32_t end) { return static_cast<uint32_t>(draw() % end); };
    constexpr uint32_t kHosts = 20;
    Placement placement;
    for (NodeId node = 1; node <= kHosts; ++node) {
      placement.set_host(node, below(9));
      placement.set_alive(node, true);
    }
    const uint64_t total = all_free(placement);
    std::vector<std::pair<job::Spec, Segments>> jobs;
    for (int step = 0; step < 120; ++step) {
      if (below(3) != 0) {
        job::Spec spec;
        for (uint32_t role = 0; role <= below(3); ++role)
          add_role(spec, 1 + below(12), below(4), below(4));
        if (auto layout = placement.place(spec)) jobs.emplace_back(spec, *layout);
      } else if (!jobs.empty() && below(2) == 0) {
        const size_t which = below(static_cast<uint32_t>(jobs.size()));
        const auto& [spec, layout] = jobs[which];
        placement.give_back(spec, layout, nodes_of(layout));
        jobs.erase(jobs.begin() + which);
      } else if (!jobs.empty()) {
        // A host goes, every job on it moves or ends, and the host is back.
        const NodeId node = 1 + below(kHosts);
        placement.set_alive(node, false);
        for (auto& [spec, layout] : jobs) {
          const RangeSet moving = processes_on(JobNumbers(spec), layout, RangeSet(node));
          if (moving.empty()) continue;
          auto next = placement.replace(spec, layout, moving);
          if (!next) continue;
          const JobNumbers numbers(spec);
          for (ProcessId process = 0; process < numbers.size(); ++process)
            if (!moving.contains(process))
              REQUIRE(place_of(spec, *next, process) == place_of(spec, layout, process));
          layout = *next;
        }
        placement.set_alive(node, true);
      }
      std::map<NodeId, uint32_t> taken;
      for (const auto& [spec, layout] : jobs) {
        check_sound(spec, layout);
        const JobNumbers numbers(spec);
        for (ProcessId process = 0; process < numbers.size(); ++process)
          taken[place_of(spec, layout, process)] +=
              spec.roles(static_cast<int>(numbers.role_of(process))).slots();
      }
      for (NodeId node = 1; node <= kHosts; ++node) {
        INFO("seed ", seed, ", step ", step, ", host ", node);
        REQUIRE(taken[node] <= placement.slots(node));
        REQUIRE(placement.free(node) == placement.slots(node) - taken[node]);
      }
    }
    for (const auto& [spec, layout] : jobs) placement.give_back(spec, layout, nodes_of(layout));
    CHECK(all_free(placement) == total);
  }
}

TEST_CASE("hosts of one user take that user's jobs alone") {
  Placement placement = hosts(1, 2);
  placement.set_host(2, 8, "ann");
  placement.set_alive(2, true);
  job::Spec spec = one_role(3);
  spec.set_account("bob");
  CHECK(placement.could_hold(spec).error().message().contains("8 more are of agents that run as"));
  CHECK(!placement.place(spec).has_value());
  spec.set_account("ann");
  CHECK(placement.could_hold(spec).has_value());
  auto layout = placement.place(spec);
  REQUIRE(layout.has_value());
  CHECK(nodes_of(*layout) == RangeSet(1, 2));
  placement.set_alive(1, false);
  spec.set_account("bob");
  CHECK(!placement.replace(spec, *layout, RangeSet(0, 1)).has_value());
}

std::string refusal(const Placement& placement, const job::Spec& spec) {
  auto held = placement.could_hold(spec);
  return held ? "" : held.error().message();
}

TEST_CASE("what no host can ever hold is refused, with what it asks and what there is") {
  Placement placement = hosts(2, 4);
  CHECK(refusal(placement, one_role(1, 6)) ==
        "role 'role1' asks for 6 slots in each process, and the largest host has 4; ask for fewer, "
        "or start an agent with --slots 6");
  CHECK(refusal(placement, one_role(3, 1, 1)) ==
        "role 'role1' asks for 3 processes of 1 slots, at most 1 of them on a host, and the 2 "
        "hosts of the cluster, of which the largest has 4, could hold 2; ask for fewer processes, "
        "raise per_host, or let hosts join");
  CHECK(refusal(placement, one_role(3, 0, 1)).contains("could hold 2"));
  CHECK(refusal(placement, one_role(2, 3)) == "");
  job::Spec both = one_role(2, 3);  // leaves one slot on each
  add_role(both, 1, 2);
  CHECK(refusal(placement, both).contains("cannot be spread"));
  // Those that are away, or busy, count: they may come back.
  placement.set_alive(2, false);
  REQUIRE(placement.place(one_role(4)).has_value());
  CHECK(refusal(placement, one_role(2, 4)) == "");
  placement.set_host(2, 0);  // forgotten
  CHECK(refusal(placement, one_role(2, 1, 1)).contains("could hold 1"));
  CHECK(refusal(placement, one_role(2, 0, 1)).contains("could hold 1"));
}

TEST_CASE("small roles that come first leave a host for a large one") {
  Placement placement = hosts(1, 4);
  placement.set_host(2, 1);
  placement.set_alive(2, true);
  job::Spec spec = one_role(1, 1);
  add_role(spec, 1, 4);
  CHECK(refusal(placement, spec) == "");
  auto layout = placement.place(spec);
  REQUIRE(layout.has_value());
  check_sound(spec, *layout);
  CHECK(place_of(spec, *layout, 0) == 2);
  CHECK(place_of(spec, *layout, 1) == 1);
}

TEST_CASE("who may use no more than what is a user's alone takes nothing else") {
  Placement placement = hosts(1, 2);
  CHECK_FALSE(placement.has_hosts_of_users());
  placement.set_host(2, 2, "ann");
  placement.set_alive(2, true);
  CHECK(placement.has_hosts_of_users());
  constexpr auto kAlone = Placement::Hosts::of_user_alone;
  job::Spec spec = one_role(3);
  spec.set_account("ann");
  CHECK_FALSE(placement.place(spec, kAlone).has_value());
  CHECK(all_free(placement) == 4);
  spec = one_role(1);
  add_role(spec, 2, 0);
  spec.set_account("ann");
  auto layout = placement.place(spec, kAlone);
  REQUIRE(layout.has_value());
  CHECK(nodes_of(*layout) == RangeSet(2));
  spec.set_account("bob");
  CHECK_FALSE(placement.place(spec, kAlone).has_value());
}

}  // namespace
}  // namespace tutti
