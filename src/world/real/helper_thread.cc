#include "world/real/helper_thread.h"

#include <sched.h>

#include <csignal>
#include <utility>

#include "base/assert.h"

namespace tutti {

HelperThread::HelperThread(Diligence diligence) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // which the thread inherits
  thread_ = std::thread([this, diligence] { serve(diligence); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

HelperThread::~HelperThread() {
  wait();
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HelperThread::start(std::function<void()> work) {
  {
    const std::scoped_lock lock(mutex_);
    TUTTI_ASSERT(!work_, "one thing at a time");
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void HelperThread::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !work_; });
}

bool HelperThread::wait_for(Duration most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [this] { return !work_; });
}

void HelperThread::serve(Diligence diligence) {
  const sched_param none{};
  if (diligence == Diligence::when_idle) sched_setscheduler(0, SCHED_IDLE, &none);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return work_ || ending_; });
    if (!work_) return;
    lock.unlock();
    work_();
    lock.lock();
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace tutti
