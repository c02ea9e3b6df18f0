#include "cluster/job_layout.h"

#include <doctest/doctest.h>

#include <string>

namespace tutti {
namespace {

job::Role* add_role(job::Spec& spec, std::string name, job::Role::Kind kind, uint32_t count) {
  job::Role* role = spec.add_roles();
  role->set_name(std::move(name));
  role->set_kind(kind);
  role->set_count(count);
  role->set_slots(1);
  return role;
}

// load: 0-1, work: 2-11, watch: 12-21 beside work.
job::Spec three_roles() {
  job::Spec spec;
  add_role(spec, "load", job::Role::TASK, 2);
  add_role(spec, "work", job::Role::GANG, 10);
  add_role(spec, "watch", job::Role::SIDECAR, 0)->set_beside("work");
  return spec;
}

void add_segment(Segments& layout, uint32_t role, NodeId first_node, NodeId last_node,
                 uint32_t per_node, uint32_t first, uint32_t count) {
  cluster::Segment& segment = *layout.Add();
  segment.set_role(role);
  segment.set_first_node(first_node);
  segment.set_last_node(last_node);
  segment.set_per_node(per_node);
  segment.set_first(first);
  segment.set_count(count);
}

// load on 1; work four to a host on 3 and 4, the last two on 7.
Segments three_roles_laid_out() {
  Segments layout;
  add_segment(layout, 0, 1, 1, 2, 0, 2);
  add_segment(layout, 1, 3, 4, 4, 0, 8);
  add_segment(layout, 1, 7, 7, 4, 8, 2);
  return layout;
}

RangeSet set(std::string_view text) { return RangeSet::parse(text).value(); }

TEST_CASE("processes are numbered through all roles, sidecars like those they are beside") {
  const JobNumbers numbers(three_roles());
  CHECK(numbers.size() == 22);
  CHECK(numbers.roles() == 3);
  CHECK(numbers.count(2) == 10);
  CHECK(numbers.of_role(0) == set("0-1"));
  CHECK(numbers.of_role(1) == set("2-11"));
  CHECK(numbers.of_role(2) == set("12-21"));
  CHECK(numbers.place_role(0) == 0);
  CHECK(numbers.place_role(2) == 1);
  for (ProcessId process = 0; process < numbers.size(); ++process)
    CHECK(numbers.number(numbers.role_of(process), numbers.index_of(process)) == process);
}

TEST_CASE("a role without processes has no numbers") {
  job::Spec spec;
  add_role(spec, "none", job::Role::TASK, 0);
  add_role(spec, "some", job::Role::TASK, 3);
  const JobNumbers numbers(spec);
  CHECK(numbers.of_role(0).empty());
  CHECK(numbers.role_of(0) == 1);
  CHECK(JobNumbers(job::Spec()).size() == 0);
}

TEST_CASE("a layout says which hosts have what, and both ways agree") {
  const JobNumbers numbers(three_roles());
  const Segments layout = three_roles_laid_out();
  CHECK(check_layout(numbers, layout).has_value());
  CHECK(nodes_of(layout) == set("1,3-4,7"));
  CHECK(processes_on(numbers, layout, set("3")) == set("2-5,12-15"));
  CHECK(processes_on(numbers, layout, set("4,7")) == set("6-11,16-21"));
  CHECK(processes_on(numbers, layout, set("0,2,5-6,8")).empty());
  CHECK(processes_on(numbers, layout, nodes_of(layout)) == set("0-21"));
  for (ProcessId process = 0; process < numbers.size(); ++process) {
    const auto node = node_of(numbers, layout, process);
    REQUIRE(node.has_value());
    CHECK(processes_on(numbers, layout, RangeSet(*node)).contains(process));
  }
  CHECK(node_of(numbers, layout, 11) == 7U);
  CHECK(node_of(numbers, layout, 17) == 4U);
}

TEST_CASE("a process that no segment has is nowhere") {
  const JobNumbers numbers(three_roles());
  Segments layout;
  add_segment(layout, 1, 3, 4, 4, 0, 8);
  CHECK(node_of(numbers, layout, 0) == std::nullopt);
  CHECK(node_of(numbers, layout, 9) == 4U);
  CHECK(node_of(numbers, layout, 10) == std::nullopt);
  CHECK(node_of(numbers, layout, 20) == std::nullopt);
}

TEST_CASE("layouts that make no sense are refused") {
  const JobNumbers numbers(three_roles());
  const auto refused = [&](auto change) {
    Segments layout = three_roles_laid_out();
    change(layout);
    return !check_layout(numbers, layout).has_value();
  };
  CHECK_FALSE(refused([](Segments&) {}));
  CHECK(refused([](Segments& layout) { layout.RemoveLast(); }));
  CHECK(refused([](Segments& layout) { layout.Clear(); }));
  CHECK(refused([](Segments& layout) { add_segment(layout, 1, 9, 9, 1, 4, 1); }));   // twice
  CHECK(refused([](Segments& layout) { add_segment(layout, 1, 9, 9, 1, 10, 1); }));  // too many
  CHECK(refused([](Segments& layout) { add_segment(layout, 2, 9, 9, 1, 0, 1); }));   // sidecar
  CHECK(refused([](Segments& layout) { add_segment(layout, 3, 9, 9, 1, 0, 1); }));   // no role
  CHECK(refused([](Segments& layout) { layout.Mutable(0)->set_first_node(kHead); }));
  CHECK(refused([](Segments& layout) { layout.Mutable(1)->set_last_node(2); }));
  CHECK(refused([](Segments& layout) { layout.Mutable(1)->set_last_node(5); }));
  CHECK(refused([](Segments& layout) { layout.Mutable(1)->set_last_node(~0U); }));
  CHECK(refused([](Segments& layout) { layout.Mutable(1)->set_per_node(0); }));
  CHECK(refused([](Segments& layout) { layout.Mutable(1)->set_per_node(3); }));
  CHECK(refused([](Segments& layout) { layout.Mutable(1)->set_count(4); }));
  CHECK(refused([](Segments& layout) { layout.Mutable(1)->set_count(0); }));
  CHECK(refused([](Segments& layout) { layout.Mutable(1)->set_first(1); }));
  CHECK(refused([](Segments& layout) { layout.Mutable(1)->set_first(~0U - 2); }));
}

TEST_CASE(
    "two layouts differ where one has what the other has elsewhere, but for what is left aside") {
  const JobNumbers numbers(three_roles());
  const Segments ours = three_roles_laid_out();
  CHECK(nodes_apart(numbers, ours, ours, RangeSet()).empty());
  // work 4-7, processes 6-9, on 9 instead of 4.
  Segments theirs;
  add_segment(theirs, 0, 1, 1, 2, 0, 2);
  add_segment(theirs, 1, 3, 3, 4, 0, 4);
  add_segment(theirs, 1, 9, 9, 4, 4, 4);
  add_segment(theirs, 1, 7, 7, 4, 8, 2);
  CHECK(nodes_apart(numbers, ours, theirs, RangeSet()) == set("9"));
  CHECK(nodes_apart(numbers, theirs, ours, RangeSet()) == set("4"));
  CHECK(nodes_apart(numbers, ours, theirs, set("6-8")) == set("9"));
  CHECK(nodes_apart(numbers, ours, theirs, set("6-9")).empty());
  // The same places, cut otherwise.
  Segments cut;
  add_segment(cut, 0, 1, 1, 1, 0, 1);
  add_segment(cut, 0, 1, 1, 1, 1, 1);
  add_segment(cut, 1, 3, 3, 4, 0, 4);
  add_segment(cut, 1, 4, 4, 4, 4, 4);
  add_segment(cut, 1, 7, 7, 2, 8, 2);
  CHECK(nodes_apart(numbers, ours, cut, RangeSet()).empty());
}

TEST_CASE("sets travel as pairs, and what is no set is refused") {
  google::protobuf::RepeatedField<uint32_t> field;
  for (const char* text : {"", "0", "3-9", "0-2,5,7-4294967295"}) {
    const RangeSet before = *text == '\0' ? RangeSet() : set(text);
    set_pairs(before, &field);
    CHECK(set_from(field).value() == before);
  }
  field.Clear();
  field.Add(4);
  CHECK_FALSE(set_from(field).has_value());
  field.Add(3);
  CHECK_FALSE(set_from(field).has_value());
}

}  // namespace
}  // namespace tutti
