// What a host gets when it first needs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "world/sim/disk.h"
#include "world/sim/event.h"
#include "world/sim/handles.h"
#include "world/sim/memory.h"
#include "world/sim/network.h"
#include "world/sim/process_table.h"

namespace tutti {

// Runs held events when the core is free again: one event for the host, however many wait.
class CoreWake final : public SimEvent {
 public:
  explicit CoreWake(SimHost& host) : SimEvent(EventKind::wake), host_(host) {}

 private:
  void fire() override;
  SimHost& host_;
};

struct HeldEvents {
  explicit HeldEvents(SimHost& host) : wake(host) {}

  bool empty() const { return first_ == timers_.size(); }
  // Its index, modulo 2^32.
  uint32_t push(Timer& timer) {
    timers_.push_back(&timer);
    return popped_ + static_cast<uint32_t>(timers_.size() - 1 - first_);
  }
  void forget(uint32_t index) { timers_[first_ + (index - popped_)] = nullptr; }
  // nullptr for one that was forgotten.
  Timer* pop() {
    Timer* timer = timers_[first_++];
    ++popped_;
    if (empty()) {
      timers_.clear();
      first_ = 0;
      if (timers_.capacity() > kKept) std::vector<Timer*>().swap(timers_);
    }
    return timer;
  }

  CoreWake wake;

 private:
  static constexpr size_t kKept = 8;  // room for so many stays: there are many hosts
  std::vector<Timer*> timers_;
  size_t first_ = 0;
  uint32_t popped_ = 0;  // the index of the first one, modulo 2^32
};

struct HostParts {
  std::string name;
  std::unique_ptr<HeldEvents> held;
  std::unique_ptr<SimHandles> handles;
  std::unique_ptr<HostPorts> ports;
  std::unique_ptr<SimNetwork> network;
  std::unique_ptr<SimDisk> disk;
  std::unique_ptr<SimMemory> memory;
  std::unique_ptr<ProcessTable> process_table;
  std::unique_ptr<SimProcesses> processes;
};

}  // namespace tutti
