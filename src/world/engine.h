// Where strands run beside a program whose thread is its own: on Linux the loop of another thread,
// in simulation the simulated process itself. A rank's transport lives there.
#pragma once

#include <atomic>
#include <functional>

#include "world/scope.h"
#include "world/world.h"

namespace tutti {

class Engine {
 public:
  virtual ~Engine() = default;
  // From any thread: runs it on the engine, as soon as possible. False: the engine has ended, and
  // nothing is run.
  virtual bool post(std::function<void()> work) = 0;
  // Blocks another thread until strands of the engine have set this. Where the engine has no thread
  // of its own there is nobody to wait for: it returns at once.
  virtual void wait_until(const std::atomic<bool>& set) = 0;

  // For what runs on the engine.
  virtual World& world() = 0;
  virtual Scope& scope() = 0;
};

}  // namespace tutti
