// The ranks of a gang on simulated hosts, with what keepers, agents and a coordinator do for them:
// whoever dies is replaced in the next epoch, and each host hears of deaths and epochs at a time of
// its own.
//
//   auto gang = SimGang::make(sim, {.wires = wires, .body = body});
//   gang->start();
//   … gang->kill(3); sim.crash(2); …
//   CO_TRY_DO(co_await gang->finish());
//
// What must hold whatever happens is stated with sim.check(): no wait ends with anything but
// success or the end of an epoch, and only ranks that died are said to be lost.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "fabric/group.h"
#include "fabric/sim/gang_wires.h"
#include "world/alarm.h"

namespace tutti {

class SimGang : public std::enable_shared_from_this<SimGang> {
 public:
  // What a rank does from its join() on; again from the beginning after a loss.
  using Body = std::function<Task<Result<void>>(Fabric&, World&)>;
  struct Options {
    std::shared_ptr<GangWires> wires;  // ranks of a host follow one another
    Body body;
    uint64_t bytes_each = 32 << 20;  // of the heap
    Duration patience = 60s;         // of a wait: past it, it hangs
    Duration news = 1ms;             // hosts hear of something within about this time
    uint32_t cores = 1;              // of each host
    TuneWhen tune = TuneWhen::never;
    bool stays = true;  // who has done its work waits for the others before it leaves
  };

  // The simulator, which holds on to it, outlives it.
  static std::shared_ptr<SimGang> make(Simulator& sim, Options options);
  ~SimGang();

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  uint32_t node_of(uint32_t rank) const { return ranks_[rank].node; }
  Duration patience() const { return options_.patience; }
  uint64_t epoch() const { return epoch_; }
  uint64_t losses() const { return losses_; }  // calls that ended with their epoch
  uint64_t deaths() const { return deaths_; }

  // Boots the hosts; ranks begin when all are up.
  void start();
  bool lives(uint32_t rank) const { return ranks_[rank].life != nullptr; }
  bool over() const { return over_; }
  void kill(uint32_t rank);
  // Until every rank has done its work and left.
  Task<Result<void>> finish();

 private:
  struct Process;
  struct Rank {
    uint32_t node = 0;
    uint32_t slot = 0;
    std::unique_ptr<Process> life;
    uint64_t died_in = 0;      // the latest epoch there was then
    uint64_t finished_in = 0;  // the epoch in which it did all its work
    bool left = false;
  };
  struct Host;
  class Presence;

  SimGang(Simulator& sim, Options options);
  Task<Result<void>> run_host(SimHost& host);
  Task<Result<void>> look_after();
  Task<Result<void>> tell_of_deaths();
  Task<Result<void>> begin_epoch();
  Task<Result<void>> pause();
  bool all_up() const;
  bool all_finished() const;
  bool all_left() const;
  void host_down(uint32_t node);
  void bury(uint32_t rank);
  tutti_control_page& page(uint32_t rank);
  void begin_page(uint32_t rank);
  void ring(uint32_t rank);
  void end_epoch(uint32_t rank);
  void start_rank(uint32_t rank);
  Task<void> live(uint32_t rank, Process& process);
  bool leaves(uint32_t rank) const;
  Task<Result<void>> take_part(uint32_t rank, Fabric& fabric, World& world);
  Task<Result<void>> open_fabric(uint32_t rank, Process& process);
  void check_lost(uint32_t rank, const Fabric& fabric, const Error& error);

  Simulator& sim_;
  Options options_;
  std::vector<Host> hosts_;
  std::vector<Rank> ranks_;
  std::set<uint32_t> dead_;  // ranks that have no process
  std::vector<std::unique_ptr<Process>> buried_;
  Alarm news_;  // for who looks after the gang
  SimRandom random_;
  uint64_t epoch_ = 0;
  int32_t next_pid_ = 0;
  uint64_t deaths_ = 0;
  uint64_t losses_ = 0;
  bool over_ = false;
  bool ended_ = false;  // all have left
};

// A call of a simulated rank.
Task<Result<void>> call_in(World& world, Group& group, Call call, Duration patience = 60s);

}  // namespace tutti
