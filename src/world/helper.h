// Somebody who does one thing at a time for us while we do something else.
#pragma once

#include <functional>

#include "base/units.h"

namespace tutti {

class Helper {
 public:
  virtual ~Helper() = default;
  // Begins the work. What was begun before must have been waited for.
  virtual void start(std::function<void()> work) = 0;
  // Returns when the work is done; at once when there is none.
  virtual void wait() = 0;
  // Waits for so long at most; whether the work is done.
  virtual bool wait_for(Duration most) = 0;
};

// Does it when asked, itself.
class HelperAtOnce final : public Helper {
 public:
  void start(std::function<void()> work) override { work(); }
  void wait() override {}
  bool wait_for(Duration) override { return true; }
};

}  // namespace tutti
