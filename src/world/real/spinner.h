// Decides whether a loop polls for a while before it sleeps.
//
// Waking a sleeping process costs tens of microseconds on a virtual machine, more than most calls
// take, so two processes that answer each other at once must not sleep in between. Polling for
// something that does not come is waste. So: waits that were short earn the right to spin, a spin
// that is not answered costs it, and each time it is lost it takes twice as many short waits to
// earn again. Losing the processor while spinning (more runnable threads than cores) loses all.
//
// Pure arithmetic: the loop measures, this class decides.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"

namespace tutti {

class Spinner {
 public:
  explicit Spinner(Duration longest) : longest_(longest) {}

  // How long the next wait may poll; zero: sleep at once.
  Duration budget() const { return credit_ > 0 ? longest_ : Duration::zero(); }

  // A wait that began by polling: what it took until the event, or until we gave up.
  void spun(Duration took, bool paid) {
    if (took > kLostProcessor * longest_) {
      lose(kLostPrice);
    } else if (paid) {
      credit_ = kFullCredit;
      if (++paid_in_a_row_ >= price_) price_ = kFirstPrice;
    } else {
      paid_in_a_row_ = 0;
      if (--credit_ == 0) lose(kFirstPrice);
    }
  }
  // A wait that slept at once.
  void slept(Duration took) {
    if (longest_ == Duration::zero()) return;
    if (took > kShortWait * longest_) {
      earned_ = 0;
    } else if (++earned_ >= price_) {
      earned_ = 0;
      credit_ = kTrialCredit;
    }
  }

 private:
  // A short wait that slept lasted the answer's time and up to two wake-ups.
  static constexpr int kShortWait = 4;
  // A spin this many times longer than allowed was interrupted by somebody else's time slice, and
  // such a slice, milliseconds, costs as much as a hundred spins save.
  static constexpr int kLostProcessor = 2;
  static constexpr uint32_t kLostPrice = 128;
  static constexpr uint32_t kFirstPrice = 2;
  static constexpr uint32_t kHighestPrice = 4096;  // then next to no wait spins in vain
  static constexpr uint32_t kTrialCredit = 4;      // both sides must be spinning before it pays
  static constexpr uint32_t kFullCredit = 16;      // one slow answer in a busy exchange is no loss

  void lose(uint32_t least_price) {
    credit_ = 0;
    earned_ = 0;
    paid_in_a_row_ = 0;
    price_ = std::clamp(price_ * 2, least_price, kHighestPrice);
  }

  Duration longest_;
  uint32_t credit_ = 0;
  uint32_t earned_ = 0;
  uint32_t paid_in_a_row_ = 0;
  uint32_t price_ = kFirstPrice;  // short waits that earn a trial; falls after as many paid spins
};

}  // namespace tutti
