// How the roles of a job hang together: who starts after whom, and who goes down with whom. Roles
// are named by their place in the job. Pure functions; but for needs_cycle(), of a job that passed
// check_job().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cluster/job.pb.h"

namespace tutti {

// How many processes a role has; a sidecar as many as the role it is beside.
uint32_t process_count(const job::Spec& spec, size_t role);

// Roles of which each needs the next and the last needs the first; none when there is no such ring.
std::vector<size_t> needs_cycle(const job::Spec& spec);

// The roles that are ended and started again when a process of one fails, in order: that role, to
// the extent of affected_processes(); others, wholly, by the job's strategy; and the sidecars of
// all those. Tasks that are done are among them: they need not be done again.
std::vector<size_t> affected_roles(const job::Spec& spec, size_t failed_role);

// The processes from `first` until before `end`.
struct ProcessRange {
  uint32_t first;
  uint32_t end;
  bool operator==(const ProcessRange&) const = default;
};

// The processes of a role of `count` that are ended and started again when one of them fails; so
// are those of its sidecars that are beside them.
ProcessRange affected_processes(job::Strategy strategy, uint32_t failed, uint32_t count);

}  // namespace tutti
