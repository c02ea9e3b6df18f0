#include "cli/sim.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/queue_mark.h"
#include "cli/arguments.h"
#include "cli/complain.h"
#include "cli/dense_heap.h"
#include "sims/scenario.h"
#include "world/real/clock.h"
#include "world/real/this_process.h"

namespace tutti::cli {

namespace {

constexpr uint32_t kMostHosts = 10'000'000;  // some 10 GB of memory
constexpr uint32_t kManyHosts = 10'000;

struct Options {
  std::string scenario;
  uint64_t seed = 1;
  uint64_t count = 1;
  std::optional<uint32_t> hosts;
  uint32_t cores = 0;
  std::string faults = "none";
  std::string costs;
  std::vector<std::string> scale;
  std::vector<std::string> set;
  std::string length;
  std::string log = "error";
  bool json = false;
};

struct Plan {
  const sims::Scenario* scenario = nullptr;
  SimulatorOptions simulator;
  Duration length{};
};

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return fail(Code::not_found, "cannot read {}", path);
  return text;
}

// "name=2", of a number above zero.
std::optional<std::pair<std::string, double>> named_number(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text.c_str() + equals + 1, &end);
  if (end == nullptr || *end != '\0' || number <= 0) return std::nullopt;
  return std::pair(text.substr(0, equals), number);
}

Result<CostTable> cost_table(const Options& options) {
  CostTable table;
  if (!options.costs.empty()) {
    TRY(const std::string text, read_text(options.costs));
    TRY(table, CostTable::parse(text, options.costs));
  }
  for (const std::string& scale : options.scale) {
    const auto named = named_number(scale);
    if (!named) return fail(Code::invalid, "--scale {}: write ENTRY=FACTOR, as send_ns=2", scale);
    TRY(table, table.scaled(named->first, named->second));
  }
  return table;
}

Result<FaultPlan> fault_plan(const std::string& name) {
  if (!name.ends_with(".toml")) return FaultPlan::named(name);
  TRY(const std::string text, read_text(name));
  TRY(FaultPlan plan, FaultPlan::parse(text, name));
  return plan;
}

Result<Plan> make_plan(const Options& options) {
  Plan plan;
  TRY(plan.scenario, sims::find_scenario(options.scenario));
  plan.simulator.seed = options.seed;
  plan.simulator.memory_in_use = [] { return memory_in_use() + dense_heap_bytes(); };
  plan.simulator.cores = options.cores;
  for (const std::string& set : options.set) {
    const auto named = named_number(set);
    if (!named) return fail(Code::invalid, "--set {}: write NAME=NUMBER, as fan_out=16", set);
    plan.simulator.settings.insert(*named);
  }
  plan.simulator.hosts = options.hosts.value_or(plan.scenario->hosts);
  if (plan.simulator.hosts > kMostHosts)
    return fail(Code::invalid, "--hosts is at most {}", kMostHosts);
  if (plan.simulator.hosts < plan.scenario->fewest)
    return fail(Code::invalid, "{} needs --hosts {} or more", plan.scenario->name,
                plan.scenario->fewest);
  plan.length = plan.scenario->length;
  if (!options.length.empty()) {
    TRY(plan.length, parse_duration(options.length));
  }
  TRY(plan.simulator.faults, fault_plan(options.faults));
  TRY(plan.simulator.costs, cost_table(options));
  return plan;
}

std::string replay_command(const Options& options, const Plan& plan, uint64_t seed) {
  std::string command = fmt::format("tutti sim {} --seed {} --hosts {} --faults {}",
                                    options.scenario, seed, plan.simulator.hosts, options.faults);
  if (!options.length.empty()) command += " --for " + options.length;
  if (options.cores != 0) command += fmt::format(" --cores {}", options.cores);
  if (!options.costs.empty()) command += " --costs " + options.costs;
  for (const std::string& scale : options.scale) command += " --scale " + scale;
  for (const std::string& set : options.set) command += " --set " + set;
  return command;
}

struct Run {
  sims::Outcome outcome;
  uint64_t seed;
  double wall_s;
  std::string replay;
};

void print_json(const Run& run, const Plan& plan) {
  Json places = Json::array();
  for (const CodePlace* place : code_places()) {
    const bool probe = place->kind == CodePlace::Kind::probe;
    places.push_back(
        {{"name", place->name}, {"kind", probe ? "probe" : "fault"}, {"hits", place->hits.load()}});
  }
  Json queues = Json::array();
  for (const QueueMark* mark : queue_marks())
    queues.push_back(
        {{"name", mark->name}, {"highest", mark->highest.load()}, {"limit", mark->limit.load()}});
  const sims::Outcome& outcome = run.outcome;
  Json figures = Json::object();
  for (const Figure& figure : outcome.figures) figures[figure.name] = figure.value;
  const Json line = {{"scenario", plan.scenario->name},
                     {"seed", run.seed},
                     {"hosts", plan.simulator.hosts},
                     {"faults", plan.simulator.faults.name},
                     {"costs", plan.simulator.costs.name},
                     {"ok", outcome.error.empty()},
                     {"error", outcome.error},
                     {"virtual_s", static_cast<double>(outcome.virtual_ns) * 1e-9},
                     {"wall_s", run.wall_s},
                     {"events", outcome.events},
                     {"trace_hash", fmt::format("{:016x}", outcome.trace_hash)},
                     {"figures", figures},
                     {"places", places},
                     {"queues", queues},
                     {"notes", outcome.last_notes},
                     {"last_events", outcome.last_events},
                     {"replay", run.replay}};
  fmt::print("{}\n", dump_json(line));
  std::fflush(stdout);
}

// Those reached; which no seed reached is for a soak to say.
void print_places() {
  std::string reached;
  for (const CodePlace* place : code_places())
    if (place->hits != 0) reached += fmt::format("{}{}", reached.empty() ? "" : ", ", place->name);
  if (!reached.empty()) fmt::print("  reached     {}\n", reached);
}

void print_text(const Run& run, const Plan& plan) {
  const sims::Outcome& outcome = run.outcome;
  const CostTable& costs = plan.simulator.costs;
  fmt::print("{} {}: seed {}, {} hosts, faults {}\n", plan.scenario->name,
             outcome.error.empty() ? "held" : "FAILED", run.seed, plan.simulator.hosts,
             plan.simulator.faults.name);
  if (!outcome.error.empty()) fmt::print("  what        {}\n", outcome.error);
  fmt::print("  time        {} virtual, {:.3f} s real\n",
             format_duration(Duration(outcome.virtual_ns)), run.wall_s);
  fmt::print("  events      {} ({:.2f} million/s)\n", outcome.events,
             static_cast<double>(outcome.events) / run.wall_s * 1e-6);
  fmt::print("  trace hash  {:016x}\n", outcome.trace_hash);
  fmt::print("  costs       {} (measured on {} with {})\n", costs.name, costs.measured_on,
             costs.measured_with);
  for (const Figure& figure : outcome.figures)
    fmt::print("  {:<11} {:g}\n", figure.name, figure.value);
  print_places();
  if (outcome.error.empty()) return;
  fmt::print("\nwhat was done to hosts last:\n");
  for (const std::string& note : outcome.last_notes) fmt::print("  {}\n", note);
  fmt::print("\nlast events, by host and then of all (time, host, kind, size):\n");
  for (const std::string& event : outcome.last_events) fmt::print("  {}\n", event);
  fmt::print("\nreplay it with:  {}\n", run.replay);
}

int list_scenarios() {
  fmt::print("usage: tutti sim NAME [--seed N] [--hosts H] [--faults none|light|heavy|FILE]\n\n");
  for (const sims::Scenario* scenario : sims::all_scenarios())
    fmt::print("  {:<16}  {} ({} hosts)\n", scenario->name, scenario->summary, scenario->hosts);
  return 0;
}

// Very large simulations spend a third of their time in the C library's allocator. What is left to
// it may use large pages, which can only be said before a program begins.
void allocate_for_many() {
  restart_with("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=500");
  use_dense_heap();
}

int run_seeds(const Options& options) {
  auto plan = make_plan(options);
  if (!plan) {
    fmt::print(stderr, "tutti sim: {}\n", plan.error().text());
    return kCalledWrongly;
  }
  auto level = parse_log_level(options.log);
  if (!level) {
    fmt::print(stderr, "tutti sim: --log: {}\n", level.error().text());
    return kCalledWrongly;
  }
  if (plan->simulator.hosts >= kManyHosts) allocate_for_many();
  set_log_level(*level);
  const RealClock clock;
  bool held = true;
  for (uint64_t seed = options.seed; seed < options.seed + options.count; ++seed) {
    plan->simulator.seed = seed;
    const Instant begin = clock.now();
    sims::Outcome outcome = run_scenario(*plan->scenario, plan->simulator, plan->length);
    const double wall_s = to_seconds(clock.now() - begin);
    held &= outcome.error.empty();
    const Run run{std::move(outcome), seed, wall_s, replay_command(options, *plan, seed)};
    options.json ? print_json(run, *plan) : print_text(run, *plan);
  }
  return held ? 0 : kFailed;
}

}  // namespace

int sim(int argc, char** argv) {
  Options options;
  Arguments app("Runs a scenario on simulated machines. The same seed gives the same run.",
                argv[0]);
  app.footer(
      "examples:\n  tutti sim echo --seed 7 --faults heavy\n"
      "  tutti sim heartbeat --hosts 1000000 --for 10s");
  app.add_option("scenario", options.scenario, "which one; without it they are listed");
  app.add_option("--seed", options.seed, "what all chance is drawn from");
  app.add_option("--count", options.count, "run this many seeds, from --seed on");
  app.add_option("--hosts", options.hosts, "how many machines");
  app.add_option("--cores", options.cores, "that they share; otherwise each has one of its own");
  app.add_option("--faults", options.faults, "none, light, heavy or a TOML file");
  app.add_option("--costs", options.costs, "a cost table of sims/costs/");
  app.add_option("--scale", options.scale, "ENTRY=FACTOR: multiply one entry of the cost table");
  app.add_option("--set", options.set, "NAME=NUMBER: a setting of the scenario");
  app.add_option("--for", options.length, "how long faults last, in virtual time: 30s, 2m");
  app.add_option("--log", options.log, "show what hosts log, from this level on: info, debug");
  app.add_flag("--json", options.json, "one JSON line per seed");
  if (const auto code = app.parse(argc, argv)) return *code;
  return options.scenario.empty() ? list_scenarios() : run_seeds(options);
}

}  // namespace tutti::cli
