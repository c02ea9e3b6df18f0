#include "world/real/engine_thread.h"

#include <doctest/doctest.h>

#include <atomic>

namespace tutti {
namespace {

Task<void> wait_for_ever(World& world, std::atomic<int>& ended) {
  auto slept = co_await world.clock().sleep_until(kNever);
  if (!slept) ++ended;
}

class Begin final : public Runnable {
 public:
  Begin(EngineThread& engine, std::atomic<int>& ended) : engine_(engine), ended_(ended) {}
  std::binary_semaphore began{0};

 private:
  void run() override {
    engine_.spawn(wait_for_ever(engine_.world(), ended_));
    began.release();
  }
  EngineThread& engine_;
  std::atomic<int>& ended_;
};

TEST_CASE("an engine runs what other threads post, and ends it when it is stopped") {
  std::atomic<int> ended = 0;
  EngineThread engine({.spin = 0s});
  Begin one(engine, ended);
  Begin other(engine, ended);
  CHECK(engine.post(one));
  std::thread([&] { CHECK(engine.post(other)); }).join();
  one.began.acquire();
  other.began.acquire();
  CHECK(ended == 0);
  engine.stop();
  CHECK(ended == 2);
  Begin late(engine, ended);
  CHECK(!engine.post(late));
  engine.stop();
}

Task<void> note_order(std::atomic<int>& ended, int& seen) {
  seen = ended;
  co_return;
}

class SetLast final : public Runnable {
 public:
  SetLast(EngineThread& engine, std::function<Task<void>()> last)
      : engine_(engine), last_(std::move(last)) {}

 private:
  void run() override { engine_.at_end(std::move(last_)); }
  EngineThread& engine_;
  std::function<Task<void>()> last_;
};

TEST_CASE("an engine's last task comes after all others") {
  std::atomic<int> ended = 0;
  int seen = -1;
  EngineThread engine({.spin = 0s});
  Begin one(engine, ended);
  SetLast last(engine, [&] { return note_order(ended, seen); });
  CHECK(engine.post(last));
  CHECK(engine.post(one));
  engine.stop();
  CHECK(seen == 1);
}

}  // namespace
}  // namespace tutti
