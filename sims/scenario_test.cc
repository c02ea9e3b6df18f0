#include "sims/scenario.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"

namespace tutti::sims {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kSeeds = 17;  // a sanitizer takes about ten times as long
#else
constexpr uint64_t kSeeds = 340;
#endif

// Every scenario under faults, in turn.
Outcome run_seed(uint64_t seed) {
  const auto scenarios = all_scenarios();
  const Scenario& scenario = *scenarios[seed % scenarios.size()];
  const std::string_view faults = seed / scenarios.size() % 2 == 0 ? "light" : "heavy";
  SimulatorOptions options{.seed = seed, .hosts = 6, .faults = *FaultPlan::named(faults)};
  return run_scenario(scenario, std::move(options), 10s);
}

TEST_CASE("the same seed gives the same events, whatever the memory looks like") {
  std::set<uint64_t> hashes;
  std::vector<std::unique_ptr<std::byte[]>> junk;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    const Outcome first = run_seed(seed);
    // Other addresses for everything in the second run.
    for (uint64_t i = 0; i < 50; ++i)
      junk.push_back(std::make_unique<std::byte[]>(1 + mix_bits(seed * 50 + i) % 5000));
    const Outcome second = run_seed(seed);
    REQUIRE(first.trace_hash == second.trace_hash);
    REQUIRE(first.events == second.events);
    CHECK_MESSAGE(first.error.empty(), "seed " << seed << ": " << first.error);
    hashes.insert(first.trace_hash);
  }
  CHECK(hashes.size() == kSeeds);
  if (kSeeds < 340) return;
  // Rare places may take more luck than that.
  const auto unreached = [](const CodePlace* place) { return place->hits == 0; };
  for (uint64_t seed = kSeeds; seed < 8 * kSeeds; ++seed) {
    if (std::ranges::none_of(code_places(), unreached)) break;
    const Outcome outcome = run_seed(seed + 1);
    CHECK_MESSAGE(outcome.error.empty(), "seed " << seed + 1 << ": " << outcome.error);
  }
  for (const CodePlace* place : code_places())
    CHECK_MESSAGE(place->hits != 0, "no seed reached: " << std::string(place->name));
}

TEST_CASE("every scenario holds without faults, and is found by its name") {
  for (const Scenario* scenario : all_scenarios()) {
    CHECK(*find_scenario(scenario->name) == scenario);
    for (const uint32_t hosts : {scenario->fewest, scenario->hosts}) {
      const Outcome outcome = run_scenario(*scenario, {.seed = 1, .hosts = hosts}, 1s);
      CHECK_MESSAGE(outcome.error.empty(), scenario->name << ": " << outcome.error);
    }
  }
  CHECK(find_scenario("ecko").error().text() ==
        "there is no scenario 'ecko'; did you mean 'echo'?");
}

double figure_of(const Outcome& outcome, std::string_view name) {
  const auto found = std::ranges::find(outcome.figures, name, &Figure::name);
  REQUIRE(found != outcome.figures.end());
  return found->value;
}

Outcome run_with(const char* name, uint32_t hosts, std::map<std::string, double> settings) {
  SimulatorOptions options{.seed = 1, .hosts = hosts, .settings = std::move(settings)};
  return run_scenario(**find_scenario(name), std::move(options), 20s);
}

TEST_CASE("a launch gets over a head that dies at any step of it") {
  const Outcome whole = run_with("head-crash", 20, {{"step", 0}});
  CHECK(whole.error.empty());
  const auto steps = static_cast<uint64_t>(figure_of(whole, "launch_steps"));
  REQUIRE(steps > 5);
  uint64_t within = 0;
  for (uint64_t step = 1; step <= steps; ++step) {
    const Outcome outcome = run_with("head-crash", 20, {{"step", static_cast<double>(step)}});
    CHECK_MESSAGE(outcome.error.empty(), "step " << step << ": " << outcome.error);
    within += figure_of(outcome, "crashed_while_launching") != 0 ? 1 : 0;
  }
  CHECK(within + 1 >= steps);  // with the last step it runs
}

TEST_CASE("directives, ends and appointments of old epochs are refused, and reported") {
  std::set<std::string> told;
  set_log_sink([&](LogLevel, std::string_view line) {
    const size_t at = line.find("refused an old ");
    if (at != std::string_view::npos) told.insert(std::string(line.substr(at, 20)));
  });
  const Scenario& replays = **find_scenario("replays");
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Outcome outcome = run_scenario(replays, {.seed = seed, .hosts = 12}, 20s);
    CHECK_MESSAGE(outcome.error.empty(), "seed " << seed << ": " << outcome.error);
  }
  set_log_sink(nullptr);
  CHECK(told.contains("refused an old direc"));
  CHECK(told.contains("refused an old appoi"));
}

Task<Result<void>> break_on_host(Simulator& sim, Duration) {
  CO_TRY_DO(co_await sim.host(1).clock().sleep(1s));
  sim.check(false, "the moon is made of cheese");
  co_return {};
}

TEST_CASE("a failure tells what, and the last events of the host it happened on") {
  const Scenario broken{"broken", "", 2, 2, 5s, break_on_host};
  const Outcome outcome = run_scenario(broken, {.seed = 1, .hosts = 2}, 5s);
  CHECK(outcome.error == "the moon is made of cheese");
  CHECK(outcome.virtual_ns == 1'000'000'000);
  REQUIRE_FALSE(outcome.last_events.empty());
  CHECK(outcome.last_events[0].find("host1") != std::string::npos);
}

}  // namespace
}  // namespace tutti::sims
