// Tells of this process's death before the kernel takes its memory apart, which takes milliseconds,
// or seconds of a large one, and which everything else that tells of a death waits for.
//
// A thread that only sleeps names a word of shared memory in its robust list. The first thing that
// the kernel does with a thread that ends is to set kLifelineBroken in such a word and to wake one
// who waits on it. While the line holds, the word is the thread's number and kLifelineWatched; 0
// when the line was let go. The word must stay mapped until then.
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.h"

namespace tutti {

constexpr uint32_t kLifelineBroken = FUTEX_OWNER_DIED;
constexpr uint32_t kLifelineWatched = FUTEX_WAITERS;  // else nobody is woken

class Lifeline {
 public:
  // It holds soon, when its thread runs.
  static Result<std::unique_ptr<Lifeline>> hold(std::atomic<uint32_t>& word);
  // Lets go. A forked process has no thread, and leaves the line to its parent.
  ~Lifeline();
  // Whether this is the process that holds it, and none that was forked from it.
  bool here() const;
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

 private:
  explicit Lifeline(std::atomic<uint32_t>& word);
  static void* thread_main(void* lifeline);
  void main();

  std::atomic<uint32_t>& word_;
  const pid_t process_;
  pthread_t thread_{};
  robust_list_head list_{};
  robust_list entry_{};
  std::atomic<uint32_t> let_go_ = 0;
};

}  // namespace tutti
