// One host of a simulation: its clock, its one core, and what its programs see as their World.
//
// Programs run as strands in scope(). Everything else of a host is made when first used: an idle
// host costs a few hundred bytes. A crash destroys all frames of the host where they stand, with
// its memory, connections and whatever its disk had not synced.
#pragma once

#include <memory>
#include <string>

#include "world/sim/random.h"
#include "world/world.h"

namespace tutti {

class SimDisk;
class SimHandles;
class SimHost;
class SimMemory;
class SimNetwork;
class Simulator;
class HostPorts;
class ProcessTable;
struct HostParts;

constexpr uint32_t kDirector = ~0U;  // no host: the strands that direct the simulation

std::string sim_host_name(uint32_t index);  // "host17"

// The part of a host that every event touches, in one cache line: its clock and its core. While
// the core is busy or the host is paused, events that are due are held, in order.
class alignas(64) HostCore final : public Clock, private TimerHost {
 public:
  HostCore(Simulator& simulator, SimHost& host, uint32_t index);

  Instant now() const override;
  int64_t unix_ns() const override;
  // When an instant of this clock comes, in simulated time.
  int64_t true_ns(Instant at) const;

  SimHost& host() const { return *host_; }
  uint32_t index() const { return index_; }

  // Occupies the core, from now or from when it is free.
  void charge(double ns);
  // When what the running handler does has its effect.
  int64_t ready_at_ns() const { return ready_at_ns_; }

 private:
  friend class Simulator;
  friend class SimHost;
  void do_arm(Timer& timer, Instant at) override;
  void do_disarm(Timer& timer) override;

  Simulator* simulator_;
  SimHost* host_;
  int64_t ready_at_ns_ = 0;  // when the core is free
  int64_t offset_ns_ = 0;    // of this clock, at simulated time 0
  int32_t drift_ppb_ = 0;    // billionths that this clock runs fast
  uint32_t slow_percent_ = 100;
  uint32_t index_;
  bool up_ = true;
  bool paused_ = false;
  bool holding_ = false;  // events wait for the core
};

class SimHost final : public World {
 public:
  SimHost(Simulator& simulator, uint32_t index);
  ~SimHost() override;

  Clock& clock() override { return core_; }
  Network& network() override;
  Disk& disk() override;
  Processes& processes() override;
  Memory& memory() override;
  Random& random() override { return random_; }
  const std::string& host_name() const override;
  bool fault(CodePlace& place) override;

  Simulator& simulator() const { return *core_.simulator_; }
  uint32_t index() const { return core_.index_; }
  Scope& scope() { return scope_; }
  HostCore& core() { return core_; }
  bool up() const { return core_.up_; }
  // How often it has started; a connection does not survive a change.
  uint32_t boots() const { return boots_; }

  // Processor time a program spends by itself, such as a handshake's arithmetic.
  void charge(double ns) { core_.charge(ns); }
  // Before its programs start: monotonic drift, and how wrong its calendar is (at any time).
  void set_drift_ppb(int32_t ppb) { core_.drift_ppb_ = ppb; }
  void set_calendar_offset(Duration offset) { calendar_offset_ns_ = to_ns(offset); }

  // What the parts of the simulator use.
  SimHandles& handles();
  HostPorts& ports();
  SimDisk& sim_disk();
  SimMemory& sim_memory();
  ProcessTable& process_table();
  // When bytes that the running handler sends have left the host: after its charge, behind others.
  int64_t leave_ns(size_t bytes);
  uint64_t draw_network();

 private:
  friend class HostCore;
  friend class Simulator;
  friend class CoreWake;
  HostParts& parts() const;
  void stop();  // kills all programs; nothing is sent any more
  void crash();
  void reboot();
  void pause();
  void resume();
  void hold(Timer& timer);
  void release_held();  // runs held events until the core is busy again
  void drop_held();
  void mend_disk();

  mutable HostParts* parts_ = nullptr;
  SimRandom random_;
  int64_t wire_free_at_ns_ = 0;
  uint64_t network_draws_ = 0;
  int64_t calendar_offset_ns_ = 0;
  uint32_t boots_ = 1;
  uint32_t fault_draws_ = 0;
  HostCore core_;
  Scope scope_{Scope::Root{}};
};

}  // namespace tutti
