// The epoch that work belongs to, as the rank's control page tells it. Whoever waits looks here:
// when the epoch is over the wait ends with aborted(epoch), without the help of any peer.
//
//   TRY_DO(epoch.enter(10min));         // the present one, or the next when that is over
//   if (epoch.over()) return fail(epoch.aborted());   // one load: look as often as you like
//
// Outside of a job there is no page, and the epoch is never over. Any thread may look; one enters.
#pragma once

#include "base/result.h"
#include "base/units.h"
#include "tutti/control_page.h"
#include "world/parking.h"

namespace tutti {

class EpochWatch {
 public:
  EpochWatch() = default;
  // Both must outlive it.
  EpochWatch(const tutti_control_page& page, Parking& parking)
      : page_(&page), parking_(&parking), epoch_(tutti_control_epoch(&page)) {}

  // Takes part in the present epoch, or waits for the next: Code::deadline when none begins.
  Result<void> enter(Duration timeout);
  uint64_t epoch() const { return epoch_; }
  bool over() const { return page_ != nullptr && tutti_control_aborted(page_, epoch_) != 0; }
  // What ends a wait when it is over: Code::unavailable, since a try in the next epoch may work.
  Error aborted() const;

 private:
  const tutti_control_page* page_ = nullptr;
  Parking* parking_ = nullptr;
  uint64_t epoch_ = 0;
};

}  // namespace tutti
