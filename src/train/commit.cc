#include "train/commit.h"

#include <algorithm>

namespace tutti {

StepReport report_of(const StepWords& words) {
  return {.born = words.born.load(),
          .ready = words.ready.load(),
          .decided = words.decided.load(),
          .committed = words.committed.load()};
}

Result<uint64_t> step_after_loss(std::span<const StepReport> ranks) {
  uint64_t newest = 0;
  for (const StepReport& rank : ranks) newest = std::max({newest, rank.decided, rank.committed});
  for (size_t i = 0; i < ranks.size(); ++i) {
    const StepReport& rank = ranks[i];
    if (newest > 0 && rank.born == 0)
      return fail(Code::not_found,
                  "rank {} has no state, and others are at step {}; its memory was lost with its "
                  "host",
                  i, newest);
    // Nobody decides before all are ready, and nobody is ready for a step before it has committed
    // the one before.
    if (rank.committed + 1 < newest || (rank.committed < newest && rank.ready < newest))
      return fail(Code::corrupt,
                  "rank {} is at step {} and ready for {}, although step {} was decided", i,
                  rank.committed, rank.ready, newest);
  }
  return newest;
}

}  // namespace tutti
