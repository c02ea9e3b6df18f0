// A Helper that is a thread. It sleeps when it has nothing to do; signals are for other threads.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "world/helper.h"

namespace tutti {

class HelperThread final : public Helper {
 public:
  HelperThread();
  ~HelperThread() override;  // waits for the work under way
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  void start(std::function<void()> work) override;
  void wait() override;
  bool wait_for(Duration most) override;

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty when it is done
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tutti
