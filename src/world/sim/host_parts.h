// What a host gets when it first needs it.
#pragma once

#include <deque>
#include <memory>
#include <string>

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
  std::deque<Timer*> timers;  // nullptr for one that was disarmed meanwhile
  uint32_t popped = 0;        // the index of the first one, modulo 2^32
  CoreWake wake;
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
