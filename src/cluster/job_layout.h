// Which process of a job is which, and where it is: arithmetic over a spec and its segments.
//
// Processes are numbered through all roles. A sidecar's processes are where those of the role are
// that it lives beside, one for one; segments name the other roles only.
#pragma once

#include <optional>
#include <vector>

#include "base/range_set.h"
#include "cluster/cluster.pb.h"
#include "cluster/tree_shape.h"

namespace tutti {

using ProcessId = uint32_t;

// Of one role, without places.
class JobNumbers {
 public:
  explicit JobNumbers(const job::Spec& spec);

  uint32_t size() const { return bases_.back(); }
  size_t roles() const { return bases_.size() - 1; }
  uint32_t count(size_t role) const { return bases_[role + 1] - bases_[role]; }
  ProcessId number(size_t role, uint32_t index) const { return bases_[role] + index; }
  size_t role_of(ProcessId process) const;
  uint32_t index_of(ProcessId process) const { return process - bases_[role_of(process)]; }
  RangeSet of_role(size_t role) const;
  // Itself, or of a sidecar the role it lives beside.
  size_t place_role(size_t role) const { return place_roles_[role]; }

 private:
  std::vector<uint32_t> bases_;
  std::vector<size_t> place_roles_;
};

using Segments = google::protobuf::RepeatedPtrField<cluster::Segment>;

RangeSet nodes_of(const Segments& layout);
RangeSet processes_on(const JobNumbers& numbers, const Segments& layout, const RangeSet& nodes);
std::optional<NodeId> node_of(const JobNumbers& numbers, const Segments& layout, ProcessId process);
// Where the other layout has processes, these left aside, that this one has elsewhere.
RangeSet nodes_apart(const JobNumbers& numbers, const Segments& layout, const Segments& other,
                     const RangeSet& aside);
// Refuses what makes no sense: roles that are not there, processes twice or nowhere, odd counts.
Result<void> check_layout(const JobNumbers& numbers, const Segments& layout);

// Sets in messages.
void set_pairs(const RangeSet& set, google::protobuf::RepeatedField<uint32_t>* field);
Result<RangeSet> set_from(const google::protobuf::RepeatedField<uint32_t>& field);

}  // namespace tutti
