#include "world/real/engine_thread.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>

namespace tutti {

class EngineThread::Stop final : public Runnable {
 public:
  explicit Stop(EngineThread& engine) : engine_(engine) {}

 private:
  void run() override { engine_.ending_->ring(); }
  EngineThread& engine_;
};

EngineThread::EngineThread(LoopOptions options) : options_(options), process_(getpid()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_.emplace([this] { main(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  started_.acquire();
}

void EngineThread::main() {
  RealWorld world(options_);
  world_ = &world;
  world.run(serve());
}

Task<void> EngineThread::serve() {
  Scope strands;
  strands_ = &strands;
  ending_ = std::make_unique<Alarm>(world_->clock());
  started_.release();
  (void)co_await ending_->until(kNever);
  strands.cancel();
  (void)co_await strands.join();
  if (last_) co_await last_();
}

bool EngineThread::here() const { return process_ == getpid(); }

bool EngineThread::post(Runnable& runnable) {
  if (!here()) return false;
  const std::lock_guard lock(lock_);
  if (open_) world_->loop().post_from_any_thread(runnable);
  return open_;
}

// Deletes itself when it ran.
class EngineThread::Posted final : public Runnable {
 public:
  explicit Posted(std::function<void()> work) : work_(std::move(work)) {}
  static void forget(Posted* posted) { delete posted; }

 private:
  void run() override {
    work_();
    delete this;
  }
  std::function<void()> work_;
};

bool EngineThread::post(std::function<void()> work) {
  auto* posted = new Posted(std::move(work));
  if (post(*posted)) return true;
  Posted::forget(posted);
  return false;
}

// What it waits for takes some tens of microseconds, a turn of the loop.
void EngineThread::wait_until(const std::atomic<bool>& set) {
  constexpr int kYields = 1000;
  for (int look = 0; !set.load(std::memory_order_acquire); ++look) {
    if (look < kYields) std::this_thread::yield();
    if (look >= kYields) std::this_thread::sleep_for(50us);
  }
}

void EngineThread::stop() {
  if (!thread_) return;
  if (!here()) {
    new std::thread(std::move(*thread_));
    thread_.reset();
    return;
  }
  Stop stop(*this);
  {
    const std::lock_guard lock(lock_);
    open_ = false;
    world_->loop().post_from_any_thread(stop);
  }
  thread_->join();
  thread_.reset();
}

}  // namespace tutti
