#include "run/epoch_watch.h"

#include <fmt/format.h>

namespace tutti {

Result<void> EpochWatch::enter(Duration timeout) {
  if (page_ == nullptr) return {};
  const Instant deadline = parking_->now() + timeout;
  for (;;) {
    const uint32_t seen = tutti_control_word(page_);
    epoch_ = tutti_control_epoch(page_);
    if (!over()) return {};
    if (parking_->now() >= deadline)
      return fail(Code::deadline,
                  "epoch {} is over, and no next one began within {}; see what the job does with "
                  "`tutti ps`",
                  epoch_, format_duration(timeout));
    parking_->park(reinterpret_cast<const std::atomic<uint32_t>&>(page_->word), seen, deadline);
  }
}

Error EpochWatch::aborted() const {
  tutti_control_dead lost;
  tutti_control_read_lost(page_, epoch_, &lost);
  std::string who;
  for (uint32_t i = 0; i < lost.count; ++i) {
    const uint32_t first = tutti_control_first(lost.ranges[i]);
    const uint32_t last = tutti_control_last(lost.ranges[i]);
    who += fmt::format("{}{}", i == 0 ? ", since the job lost process " : ", ", first);
    if (last != first) who += fmt::format("-{}", last);
  }
  return {Code::unavailable, fmt::format("aborted(epoch {}): it is over{}; try again, which is in "
                                         "the next",
                                         epoch_, who)};
}

}  // namespace tutti
