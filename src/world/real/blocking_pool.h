// A few threads for system calls that can only block.
//
// Threads are started when there is work for them and none is idle, and stay until the pool dies.
// All functions belong to the loop's thread; only Job::work runs elsewhere.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "world/real/loop.h"

namespace tutti {

class BlockingPool {
 public:
  class Job : public Runnable {
   public:
    virtual void work() = 0;  // on a thread of the pool; then run() on the loop's

   protected:
    ~Job() = default;
  };

  BlockingPool(Loop& loop, unsigned most_threads) : loop_(loop), most_threads_(most_threads) {}
  ~BlockingPool();  // every job must have run
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  // Jobs begin in order. The job must live until it ran or was withdrawn.
  void submit(Job& job);
  // True when its work had not begun: then neither work() nor run() will be called.
  bool withdraw(Job& job);

 private:
  static void* thread_main(void* pool);
  void serve();
  bool start_thread();

  Loop& loop_;
  const unsigned most_threads_;
  std::vector<pthread_t> threads_;
  std::mutex lock_;
  std::condition_variable work_;
  List<Job> queue_;  // this and what follows are guarded by lock_
  size_t queued_ = 0;
  size_t idle_ = 0;
  bool ending_ = false;
};

}  // namespace tutti
