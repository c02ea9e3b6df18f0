// A thread with a loop of its own, for processes whose other threads belong to somebody else: the
// transport of a rank, Python's blocking calls.
//
//   EngineThread engine;
//   engine.post(runnable);   // from any thread; it runs on the loop, and may spawn() there
//
// The thread is given no signals. A process that was forked has no thread: post() then refuses, and
// stop() leaves the thread to the parent.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <thread>

#include "world/alarm.h"
#include "world/engine.h"
#include "world/real/real_world.h"

namespace tutti {

class EngineThread final : public Engine {
 public:
  explicit EngineThread(LoopOptions options = {});
  ~EngineThread() override { stop(); }
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // From any thread: runs it on the loop, soon. False, and it is not run, after stop().
  bool post(Runnable& runnable);
  bool post(std::function<void()> work) override;
  void wait_until(const std::atomic<bool>& set) override;
  // Whether the thread is one of this process.
  bool here() const;
  // Cancels all strands, waits for them, and ends the thread. Not from the loop's thread.
  void stop();

  // From the loop's thread.
  RealWorld& world() override { return *world_; }
  Scope& scope() override { return *strands_; }
  void spawn(Task<void> task) { strands_->spawn(std::move(task)); }
  // Done when all else has ended.
  void at_end(std::function<Task<void>()> last) { last_ = std::move(last); }

 private:
  class Stop;
  class Posted;
  void main();
  Task<void> serve();

  LoopOptions options_;
  pid_t process_;
  std::mutex lock_;
  bool open_ = true;  // guarded by lock_
  std::optional<std::thread> thread_;
  std::binary_semaphore started_{0};
  // Of the loop's thread.
  RealWorld* world_ = nullptr;
  Scope* strands_ = nullptr;
  std::unique_ptr<Alarm> ending_;
  std::function<Task<void>()> last_;
};

}  // namespace tutti
