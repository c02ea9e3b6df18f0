// A Helper that is a thread. It sleeps when it has nothing to do; signals are for other threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "world/helper.h"

namespace tutti {

enum class Diligence : uint8_t {
  ordinary,
  when_idle,  // works on cores that nobody else wants
};

class HelperThread final : public Helper {
 public:
  explicit HelperThread(Diligence diligence = Diligence::ordinary);
  ~HelperThread() override;  // waits for the work under way
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  void start(std::function<void()> work) override;
  void wait() override;
  bool wait_for(Duration most) override;

 private:
  void serve(Diligence diligence);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty when it is done
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tutti
