// What a job may ask for at most. Whoever reads a number and whoever checks a job use the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/units.h"

namespace tutti {

struct JobLimits {
  int64_t least;
  int64_t most;
  constexpr bool allow(int64_t value) const { return value >= least && value <= most; }
};

// Ten times the largest machines there are; all roles of a job together have no more either.
constexpr size_t kFabricKeyBytes = 32;

constexpr JobLimits kCountLimits{1, 10'000'000};
// No host has more hardware threads than this.
constexpr JobLimits kPerHostLimits{0, 4096};
constexpr JobLimits kSlotsLimits{0, 4096};
// Each holds its imports in memory and does nothing.
constexpr JobLimits kSparesLimits{0, 256};
// The times of all within a period are kept.
constexpr JobLimits kRestartsLimits{0, 10'000};
constexpr JobLimits kHealthFailuresLimits{1, 1'000};
constexpr JobLimits kPortLimits{1, 65'535};
// What Linux allows one process (fs.nr_open) at most.
constexpr JobLimits kOpenFilesLimits{0, 1 << 30};

// Some are added up, doubled, and added to what a clock says: that stays within a Duration.
constexpr Duration kLongestJobTime = 24h * 3650;
// Looking for a cycle among them takes as many steps as they have pairs.
constexpr size_t kMostRoles = 256;
// A label of a host name, so that names may become part of one.
constexpr size_t kMostNameBytes = 63;
// The head keeps every job, and each of its hosts is sent it.
constexpr size_t kMostJobBytes = 1_MiB;

// job::Budget::restarts of what is started again as often as it ends.
constexpr uint32_t kAlwaysRestart = std::numeric_limits<uint32_t>::max();

}  // namespace tutti
