#include "sims/scenario.h"

#include <fmt/ranges.h>

#include "base/log.h"
#include "base/suggest.h"
#include "sims/scenarios.h"
#include "world/sim/director.h"

namespace tutti::sims {

namespace {

constexpr const Scenario* kScenarios[] = {
    &kEcho,           &kDisk,        &kEventLog,     &kHeartbeat,
    &kTree,           &kLaunch,      &kLaunchDeaths, &kRackLoss,
    &kPartition,      &kHeadCrash,   &kHeadCrashes,  &kCoordinatorLoss,
    &kAgentRestarts,  &kAgentLeaves, &kSlowHosts,    &kThunderingRestart,
    &kReplays,        &kExchange,    &kSpares,       &kScale,
    &kTurnaround,     &kServices,    &kStuck,        &kWirePartition,
    &kWireSlowReader, &kWireReset,   &kFabric,       &kFabricTcp};

constexpr size_t kNotesShown = 20;
constexpr size_t kEventsShown = 12;
constexpr size_t kEventsShownOfOthers = 4;
constexpr uint32_t kMostHostsShown = 16;  // of more, only the one on which it happened
// How much longer than its faults a scenario may take to recover and finish.
constexpr Duration kAftermath = 10min;

void explain(const Simulator& sim, Outcome& outcome) {
  const std::vector<std::string>& notes = sim.notes();
  const size_t first = notes.size() > kNotesShown ? notes.size() - kNotesShown : 0;
  outcome.last_notes.assign(notes.begin() + static_cast<ptrdiff_t>(first), notes.end());
  const uint32_t culprit = sim.failure() ? sim.failure()->host : kDirector;
  const bool few = sim.hosts() <= kMostHostsShown;
  for (uint32_t host = few ? 0 : culprit; host < sim.hosts() && (few || host == culprit); ++host) {
    const size_t shown = host == culprit ? kEventsShown : kEventsShownOfOthers;
    for (const TraceEvent& event : sim.trace().last_of(host, shown))
      outcome.last_events.push_back(format_trace_event(event));
  }
  for (const TraceEvent& event : sim.trace().last(kEventsShown))
    outcome.last_events.push_back(format_trace_event(event));
}

// While it lives, what is logged has the virtual time and the name of its host.
class LogsOf {
 public:
  explicit LogsOf(const Simulator& sim) {
    set_log_stamp([&sim, host = std::string()] mutable {
      host = sim.current_host() == kDirector ? "director" : sim_host_name(sim.current_host());
      return LogStamp{LogStamp::Clock::virtual_, sim.now_ns(), host};
    });
  }
  ~LogsOf() { set_log_stamp(nullptr); }
  LogsOf(const LogsOf&) = delete;
  LogsOf& operator=(const LogsOf&) = delete;
};

}  // namespace

std::span<const Scenario* const> all_scenarios() { return kScenarios; }

Result<const Scenario*> find_scenario(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Scenario* scenario : kScenarios) {
    if (scenario->name == name) return scenario;
    names.push_back(scenario->name);
  }
  const auto meant = suggest(name, names);
  const std::string hint = meant ? fmt::format("did you mean '{}'?", *meant) : "see: tutti sim";
  return fail(Code::not_found, "there is no scenario '{}'; {}", name, hint);
}

Task<Result<void>> suffer(Simulator& sim, Duration length) {
  Scope scope;
  scope.spawn(direct_faults(sim, sim.options().faults));
  auto slept = co_await sim.clock().sleep(length);
  scope.cancel();
  auto joined = co_await scope.join();
  sim.heal_all();
  if (!slept) co_return slept;
  co_return joined;
}

Outcome run_scenario(const Scenario& scenario, SimulatorOptions options, Duration length) {
  Simulator sim(std::move(options));
  const LogsOf logs(sim);
  auto result = sim.run(scenario.run(sim, length), length + kAftermath);
  Outcome outcome;
  if (const auto unused = sim.unused_settings(); !unused.empty()) {
    outcome.error = fmt::format("{} has no setting '{}'; it has: {}", scenario.name, unused.front(),
                                fmt::join(sim.asked_settings(), ", "));
    return outcome;
  }
  outcome.virtual_ns = sim.now_ns();
  outcome.events = sim.events();
  outcome.trace_hash = sim.trace_hash();
  outcome.figures = sim.figures();
  if (result) return outcome;
  outcome.error = result.error().text();
  explain(sim, outcome);
  return outcome;
}

}  // namespace tutti::sims
