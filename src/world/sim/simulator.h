// A deterministic world of any number of hosts, in one thread, on a virtual clock.
//
//   Simulator sim({.seed = 7, .hosts = 100});
//   sim.set_program(serve);                 // what hosts run from each boot
//   sim.start_all();
//   auto result = sim.run(scenario(sim), 10min);
//
// Every event is taken from one wheel in the order of (time, insertion); after each, strands run
// until none is ready. All chance comes from the seed. Equal seeds, options and programs give
// equal trace hashes, always.
//
// A host handles one event at a time: its cost occupies the host's core, later events of that host
// wait, and what a handler sends leaves when its cost is paid.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/alike.h"
#include "world/sim/costs.h"
#include "world/sim/fault_plan.h"
#include "world/sim/host.h"
#include "world/sim/links.h"
#include "world/sim/trace.h"
#include "world/timer_wheel.h"

namespace tutti {

class SimProcess;

struct SimulatorOptions {
  uint64_t seed = 1;
  uint32_t hosts = 1;
  uint32_t cores = 0;  // that all hosts share, as machines in one do; 0: each has one of its own
  CostTable costs = {};
  FaultPlan faults = {};
  std::function<uint64_t()> memory_in_use = {};  // by this process, for figures
  std::map<std::string, double> settings = {};   // of the scenario, by name
};

// Something a run measured.
struct Figure {
  std::string name;
  double value;
};

struct CheckFailure {
  std::string what;
  int64_t at_ns = 0;
  uint32_t host = kDirector;  // whose event was being handled
};

class Simulator final : private TimerHost {
 public:
  explicit Simulator(SimulatorOptions options);
  ~Simulator();
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  const SimulatorOptions& options() const { return options_; }
  const CostTable& costs() const { return options_.costs; }
  uint32_t hosts() const { return options_.hosts; }
  SimHost& host(uint32_t index);  // made when first asked for
  LinkTable& links() { return links_; }

  // What a host runs when it starts and after each reboot. An error it returns is noted.
  using HostProgram = std::function<Task<Result<void>>(SimHost&)>;
  void set_program(HostProgram program) { program_ = std::move(program); }
  void start(uint32_t index);
  void start_all();

  // What a process called by this name does; it gives the exit code.
  using ProcessProgram = std::function<Task<int>(SimProcess&)>;
  void set_process(std::string name, ProcessProgram program);
  const ProcessProgram* find_process(const std::string& name) const;

  // The director's clock and strands: outside of all hosts, never faulty, costing nothing.
  Clock& clock() { return director_.clock(); }
  Scope& scope() { return director_.scope(); }
  SimRandom random(RandomStream stream) const { return SimRandom(key(kDirector, stream)); }

  // Runs until the task is done, a check failed, or the limit of virtual time has passed.
  Result<void> run(Task<Result<void>> task, Duration limit);
  void run_for(Duration duration);

  int64_t now_ns() const { return now_ns_; }
  uint32_t current_host() const { return current_host_; }  // whose event is being handled
  uint64_t trace_hash() const { return trace_.hash(); }
  uint64_t events() const { return trace_.count(); }
  const Trace& trace() const { return trace_; }

  // An invariant: when it does not hold the run ends and fails. Gives the condition.
  template <class... Args>
  bool check(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (!holds) [[unlikely]]
      check_failed(fmt::format(format, std::forward<Args>(args)...));
    return holds;
  }
  const std::optional<CheckFailure>& failure() const { return failure_; }

  // Notes of what was done to hosts, and of programs that failed; the last few are kept.
  void note(uint32_t host, std::string text);
  const std::vector<std::string>& notes() const { return notes_; }

  // What was set by this name, or the usual.
  double setting(const std::string& name, double usual);
  // Names that were set and nobody asked for, and those that somebody did.
  std::vector<std::string> unused_settings() const;
  const std::set<std::string>& asked_settings() const { return asked_settings_; }

  void figure(std::string name, double value) { figures_.push_back({std::move(name), value}); }
  const std::vector<Figure>& figures() const { return figures_; }
  uint64_t memory_in_use() const { return options_.memory_in_use ? options_.memory_in_use() : 0; }

  // A core that is shared is taken for so long, from then on or when one is free: since when.
  bool shares_cores() const { return !cores_free_at_ns_.empty(); }
  int64_t take_core(int64_t from_ns, int64_t ns);

  // Faults, at once. Crashes come as an event of their own, never inside the caller.
  void crash(uint32_t index);
  void reboot(uint32_t index);
  // Counts what comes to a host from outside its programs from now on: packets, disk completions,
  // ends of processes. It crashes when it has handled so many; 0: it does not. One host at a time.
  void count_steps(uint32_t index, uint64_t crash_after = 0);
  uint64_t steps() const { return steps_; }
  void pause(uint32_t index);
  void resume(uint32_t index);
  void set_slow(uint32_t index, uint32_t percent);  // 300: everything costs three times as much
  // Ends every fault there is: reboots, resumes, reconnects, mends disks.
  void heal_all();

  // What the parts of the simulator use.
  void schedule(SimEvent& event, HostCore& on, int64_t at_ns);
  void call_soon(std::function<void()> action);  // as an event of its own, now
  uint64_t key(uint32_t host, RandomStream stream) const {
    return random_key(options_.seed, host, stream);
  }
  HostCore& director() { return director_.core(); }
  TimerWheel& wheel() { return wheel_; }
  AlikePool& alike() { return alike_; }  // for what hosts keep, which is much the same on all

 private:
  friend class HostCore;
  friend class SimHost;
  class Call;
  static void prefetch_soon(const Timer& timer);
  static void prefetch_next(const Timer& timer);
  void run_events(int64_t until_ns);
  void handle(HostCore& core, Timer& timer);
  void schedule_again(Timer& timer, HostCore& on);
  void check_failed(std::string what);

  SimulatorOptions options_;
  AlikePool alike_;
  Executor executor_;
  TimerWheel wheel_{{prefetch_soon, prefetch_next}};
  int64_t now_ns_ = 0;
  bool stopped_ = false;
  uint32_t current_host_ = kDirector;
  uint32_t steps_of_ = kDirector;
  uint64_t steps_ = 0;
  uint64_t crash_after_ = 0;
  Trace trace_;
  LinkTable links_;
  std::map<std::string, ProcessProgram> processes_;
  HostProgram program_;
  std::optional<CheckFailure> failure_;
  std::vector<std::string> notes_;
  std::vector<Figure> figures_;
  std::set<std::string> asked_settings_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::vector<int64_t> cores_free_at_ns_;  // of shared ones
  List<Call> calls_;
  SimHost director_;
};

}  // namespace tutti
