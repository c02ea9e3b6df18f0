#include "world/real/blocking_pool.h"

#include <csignal>

namespace tutti {

namespace {
constexpr size_t kStackBytes = 256 << 10;  // system calls need little
}

BlockingPool::~BlockingPool() {
  {
    const std::lock_guard lock(lock_);
    TUTTI_ASSERT(queue_.empty(), "a pool outlives its jobs");
    ending_ = true;
  }
  work_.notify_all();
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

void BlockingPool::submit(Job& job) {
  bool needs_thread = false;
  {
    const std::lock_guard lock(lock_);
    queue_.push_back(job);
    ++queued_;
    needs_thread = queued_ > idle_ && threads_.size() < most_threads_;
  }
  work_.notify_one();
  if (!needs_thread || start_thread() || !threads_.empty()) return;
  // Not one thread is to be had: do it here, late rather than never.
  if (!withdraw(job)) return;
  job.work();
  loop_.executor().post(job);
}

bool BlockingPool::withdraw(Job& job) {
  const std::lock_guard lock(lock_);
  for (Job* queued = queue_.first(); queued != nullptr; queued = queue_.next(*queued)) {
    if (queued != &job) continue;
    job.unlink();
    --queued_;
    return true;
  }
  return false;
}

// Signals are for the threads that ask for them.
bool BlockingPool::start_thread() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, &thread_main, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (started) threads_.push_back(thread);
  return started;
}

void* BlockingPool::thread_main(void* pool) {
  pthread_setname_np(pthread_self(), "tutti-blocking");
  static_cast<BlockingPool*>(pool)->serve();
  return nullptr;
}

void BlockingPool::serve() {
  std::unique_lock lock(lock_);
  for (;;) {
    ++idle_;
    while (queue_.empty() && !ending_) work_.wait(lock);
    --idle_;
    if (queue_.empty()) return;
    Job& job = queue_.pop_front();
    --queued_;
    lock.unlock();
    job.work();
    loop_.post_from_any_thread(job);
    lock.lock();
  }
}

}  // namespace tutti
