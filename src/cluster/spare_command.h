// How a role's command is parked: as `python -m tutti.spare`, which does everything slow and waits.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/job.pb.h"

namespace tutti {

// Of "python -u train.py --lr 1": "python -u -m tutti.spare --preload numpy train.py --lr 1".
// Code::invalid of a command that cannot be parked, with why.
Result<std::vector<std::string>> spare_command(const job::Role& role);

}  // namespace tutti
