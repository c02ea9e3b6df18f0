// Scenarios: programs on simulated hosts, the faults that befall them, and what must hold whatever
// happens. `tutti sim NAME --seed N` runs one; a soak runs all of them over many seeds.
//
// To add one: a file sims/<name>.cc with a `const Scenario k…`, and its line in scenario.cc. The
// run function sets the hosts' program, starts them, lets faults happen with suffer(), and checks
// with sim.check() what must hold. It must hold for every seed, number of hosts and fault plan.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "world/sim/simulator.h"

namespace tutti::sims {

struct Scenario {
  std::string_view name;
  std::string_view summary;
  uint32_t hosts;   // when nobody says how many
  uint32_t fewest;  // hosts it needs
  Duration length;  // of the faults, in virtual time
  Task<Result<void>> (*run)(Simulator& sim, Duration length);
};

std::span<const Scenario* const> all_scenarios();
// Code::not_found, with what was perhaps meant.
Result<const Scenario*> find_scenario(std::string_view name);

// The faults of the simulator's plan for this long; then everything is healed.
Task<Result<void>> suffer(Simulator& sim, Duration length);

struct Outcome {
  std::string error;  // empty when all held
  int64_t virtual_ns = 0;
  uint64_t events = 0;
  uint64_t trace_hash = 0;
  std::vector<Figure> figures;           // what it measured
  std::vector<std::string> last_notes;   // what was done to hosts
  std::vector<std::string> last_events;  // of the host that failed, then of all
};

// Runs one to its end, in a simulator of its own.
Outcome run_scenario(const Scenario& scenario, SimulatorOptions options, Duration length);

}  // namespace tutti::sims
