#include "cluster/job_layout.h"

#include <algorithm>

namespace tutti {
namespace {

struct Indexes {
  uint32_t first;
  uint32_t last;
};

// The processes of a segment on these of its nodes, as indexes within the role.
Indexes indexes_on(const cluster::Segment& segment, NodeId first_node, NodeId last_node) {
  const uint64_t before = uint64_t{first_node - segment.first_node()} * segment.per_node();
  const uint64_t through = uint64_t{last_node - segment.first_node() + 1} * segment.per_node();
  const uint64_t end = std::min<uint64_t>(through, segment.count());
  return {segment.first() + static_cast<uint32_t>(before),
          segment.first() + static_cast<uint32_t>(end) - 1};
}

NodeId node_in(const cluster::Segment& segment, uint32_t index) {
  return segment.first_node() + (index - segment.first()) / segment.per_node();
}

// Which have the processes that are in both in the same places.
bool are_aligned(const cluster::Segment& one, const cluster::Segment& two) {
  const auto begin = [](const cluster::Segment& segment) {
    return int64_t{segment.first_node()} * segment.per_node() - segment.first();
  };
  return one.per_node() == two.per_node() && begin(one) == begin(two);
}

}  // namespace

JobNumbers::JobNumbers(const job::Spec& spec) : bases_{0} {
  for (int i = 0; i < spec.roles_size(); ++i) {
    const job::Role& role = spec.roles(i);
    const job::Role* counted = &role;
    place_roles_.push_back(static_cast<size_t>(i));
    if (role.kind() == job::Role::SIDECAR) {
      const auto beside = std::ranges::find(spec.roles(), role.beside(), &job::Role::name);
      if (beside != spec.roles().end()) {
        counted = &*beside;
        place_roles_.back() = static_cast<size_t>(beside - spec.roles().begin());
      }
    }
    bases_.push_back(bases_.back() + counted->count());
  }
}

size_t JobNumbers::role_of(ProcessId process) const {
  const auto after = std::ranges::upper_bound(bases_, process);
  return static_cast<size_t>(after - bases_.begin()) - 1;
}

RangeSet JobNumbers::of_role(size_t role) const {
  return count(role) == 0 ? RangeSet() : RangeSet(bases_[role], bases_[role + 1] - 1);
}

RangeSet nodes_of(const Segments& layout) {
  RangeSet nodes;
  for (const cluster::Segment& segment : layout)
    nodes.add(segment.first_node(), segment.last_node());
  return nodes;
}

RangeSet processes_on(const JobNumbers& numbers, const Segments& layout, const RangeSet& nodes) {
  RangeSet processes;
  for (size_t role = 0; role < numbers.roles(); ++role) {
    for (const cluster::Segment& segment : layout) {
      if (segment.role() != numbers.place_role(role)) continue;
      const RangeSet here = nodes.common(RangeSet(segment.first_node(), segment.last_node()));
      for (const RangeSet::Range& range : here.ranges()) {
        const Indexes indexes = indexes_on(segment, range.first, range.last);
        processes.add(numbers.number(role, indexes.first), numbers.number(role, indexes.last));
      }
    }
  }
  return processes;
}

std::optional<NodeId> node_of(const JobNumbers& numbers, const Segments& layout,
                              ProcessId process) {
  const size_t role = numbers.place_role(numbers.role_of(process));
  const uint32_t index = numbers.index_of(process);
  for (const cluster::Segment& segment : layout) {
    if (segment.role() != role || index < segment.first()) continue;
    if (index - segment.first() >= segment.count()) continue;
    return node_in(segment, index);
  }
  return std::nullopt;
}

RangeSet nodes_apart(const JobNumbers& numbers, const Segments& layout, const Segments& other,
                     const RangeSet& aside) {
  RangeSet nodes;
  for (const cluster::Segment& one : layout) {
    for (const cluster::Segment& two : other) {
      const uint32_t first = std::max(one.first(), two.first());
      const uint32_t end = std::min(one.first() + one.count(), two.first() + two.count());
      if (one.role() != two.role() || first >= end || are_aligned(one, two)) continue;
      const RangeSet both(numbers.number(one.role(), first), numbers.number(one.role(), end - 1));
      const RangeSet meant = both.minus(aside);
      for (const ProcessId process : meant.members()) {
        const uint32_t index = numbers.index_of(process);
        const NodeId node = node_in(two, index);
        if (node != node_in(one, index)) nodes.add(node);
      }
    }
  }
  return nodes;
}

Result<void> check_layout(const JobNumbers& numbers, const Segments& layout) {
  std::vector<RangeSet> placed(numbers.roles());
  for (const cluster::Segment& segment : layout) {
    const uint64_t nodes = uint64_t{segment.last_node()} - segment.first_node() + 1;
    const bool sound = segment.role() < numbers.roles() && segment.first_node() != kHead &&
                       segment.last_node() >= segment.first_node() && segment.per_node() != 0 &&
                       segment.count() > (nodes - 1) * segment.per_node() &&
                       segment.count() <= nodes * segment.per_node() &&
                       uint64_t{segment.first()} + segment.count() <= numbers.count(segment.role());
    if (!sound) return fail(Code::invalid, "a segment of the layout makes no sense");
    const RangeSet here(segment.first(), segment.first() + segment.count() - 1);
    if (placed[segment.role()].meets(here))
      return fail(Code::invalid, "the layout has a process of role {} twice", segment.role());
    placed[segment.role()].add(here);
  }
  for (size_t role = 0; role < numbers.roles(); ++role) {
    const bool sidecar = numbers.place_role(role) != role;
    const uint64_t wanted = sidecar ? 0 : numbers.count(role);
    const bool whole =
        placed[role].size() == wanted && (wanted == 0 || placed[role].back() == wanted - 1);
    if (!whole)
      return fail(Code::invalid, "the layout places {} of {} processes of role {}",
                  placed[role].size(), wanted, role);
  }
  return {};
}

void set_pairs(const RangeSet& set, google::protobuf::RepeatedField<uint32_t>* field) {
  field->Clear();
  for (const uint32_t end : set.pairs()) field->Add(end);
}

Result<RangeSet> set_from(const google::protobuf::RepeatedField<uint32_t>& field) {
  return RangeSet::from_pairs({field.data(), static_cast<size_t>(field.size())});
}

}  // namespace tutti
