// What a job is where nobody said otherwise. Whoever makes a job::Spec begins with these, so that
// nobody who reads one has to know the defaults.
#pragma once

#include "cluster/job.pb.h"

namespace tutti {

job::Spec default_job();
// Without name and command; a sidecar also without the role it is beside.
job::Role default_role(job::Role::Kind kind);
// Of a service that says how to look, but not when.
job::Health default_health();

}  // namespace tutti
