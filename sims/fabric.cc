// Gangs that call random collectives of random groups, types and sizes while their ranks and hosts
// die and their links are cut, over a modelled network (`fabric`) or over TCP, whose connections
// break and damage bytes (`fabric-tcp`).
//
// What must hold: every call ends, with the right bits or with the end of its epoch, which names
// only ranks that died; and when all is well everybody gets through. `--set ranks=8` has so many
// ranks on each host: with `--hosts 128` a gang of 1,024.
#include <algorithm>
#include <memory>

#include "fabric/sim/gang.h"
#include "sims/fabric_calls.h"
#include "sims/scenarios.h"

namespace tutti::sims {
namespace {

constexpr Duration kPatience = 5min;  // of a wait, through all faults
constexpr uint32_t kManyRanks = 128;  // then calls are smaller, and rates are found less often
constexpr double kCoarseNs = 2000;    // of so many
constexpr uint32_t kMostRanks = 3;    // of a host, when nobody says how many
constexpr uint32_t kSplits = 2;       // of all ranks into groups, besides the group of all

uint64_t draw(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  return mix_bits(mix_bits(mix_bits(mix_bits(seed) + a) + b) + c);
}

// What all ranks do, round after round, and what is known of it outside of all hosts.
class Work {
 public:
  struct Plan {
    uint64_t seed = 1;
    uint32_t ranks = 1;
    uint64_t rounds = 1;
    uint64_t most_elements = 1;
    Duration pause{};  // between rounds, at most
  };
  Work(Simulator& sim, Plan plan) : sim_(sim), plan_(plan), done_(plan.ranks), bell_(sim.clock()) {
    for (uint32_t split = 0; split < kSplits; ++split) splits_.push_back(split_ranks(split));
  }

  Task<Result<void>> go_on(Fabric& fabric, World& world) {
    CO_TRY(const auto groups, co_await make_groups(fabric, world));
    int64_t round = done_[fabric.rank()];
    auto* oldest = reinterpret_cast<std::byte*>(&round);
    Call least{.kind = CallKind::all_reduce,
               .type = DType::i64,
               .op = ReduceOp::min,
               .elements = 1,
               .input = oldest,
               .output = oldest,
               .site = "agree"};
    CO_TRY_DO(co_await call_in(world, *groups[0], std::move(least), kPatience));
    for (; round < static_cast<int64_t>(plan_.rounds); ++round) {
      const auto number = static_cast<uint64_t>(round);
      CO_TRY_DO(co_await do_round(fabric, world, groups, number));
      done_[fabric.rank()] = round + 1;
      const uint64_t most = static_cast<uint64_t>(to_ns(plan_.pause)) + 1;
      const auto pause =
          Duration(static_cast<int64_t>(draw(plan_.seed, 5, number, fabric.rank()) % most));
      CO_TRY_DO(co_await world.clock().sleep(pause));
    }
    Call barrier{.kind = CallKind::barrier, .site = "end"};  // all have done the last one
    auto met = co_await call_in(world, *groups[0], std::move(barrier), kPatience);
    co_return met;
  }

  // When so many more calls were begun than now.
  Task<Result<void>> calls_begun(uint64_t more) {
    awaited_ = calls_ + more;
    while (calls_ < awaited_) CO_TRY_DO(co_await bell_.until(kNever));
    co_return Result<void>{};
  }
  uint64_t checked() const { return checked_; }

 private:
  using Groups = std::vector<std::shared_ptr<Group>>;

  // All ranks in a random order, cut into two to four groups.
  std::vector<std::vector<uint32_t>> split_ranks(uint32_t split) const {
    SimRandom random(draw(plan_.seed, 1, split));
    std::vector<uint32_t> order(plan_.ranks);
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    if (split != 0)  // the first keeps neighbours together
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    const auto pieces = std::min(plan_.ranks, 2 + static_cast<uint32_t>(random.below(3)));
    std::vector<std::vector<uint32_t>> groups(pieces);
    for (uint32_t i = 0; i < order.size(); ++i)
      groups[uint64_t{i} * pieces / order.size()].push_back(order[i]);
    return groups;
  }

  Task<Result<Groups>> make_groups(Fabric& fabric, World& world) {
    Groups groups{fabric.world()};
    for (uint32_t split = 0; split < splits_.size(); ++split) {
      for (const std::vector<uint32_t>& ranks : splits_[split]) {
        if (std::ranges::find(ranks, fabric.rank()) == ranks.end()) continue;
        std::vector<uint32_t> members = ranks;
        auto made = co_await fabric.group(world, std::move(members), fmt::format("split{}", split));
        if (!made) co_return fail(std::move(made).error());
        groups.push_back(*std::move(made));
      }
    }
    co_return groups;
  }

  // One to three calls of one group, begun together.
  Task<Result<void>> do_round(Fabric& fabric, World& world, const Groups& groups, uint64_t round) {
    const uint64_t which = draw(plan_.seed, 2, round) % groups.size();
    Group& group = *groups[which];
    const uint64_t of_group = draw(plan_.seed, 3, round, group.rank_of(0));
    const uint64_t way = of_group % (kRailWays + 3);
    group.set_way(way < kRailWays ? std::optional(static_cast<RailWay>(way)) : std::nullopt);
    std::vector<std::unique_ptr<CheckedCall>> calls;
    std::vector<std::shared_ptr<Operation>> operations;
    for (uint64_t i = 0; i <= (of_group >> 8) % 3; ++i) {
      const DrawnCall drawn =
          draw_call(draw(of_group, fabric.epoch(), i), group.size(), plan_.most_elements);
      calls.push_back(std::make_unique<CheckedCall>(drawn, group.index()));
      if (++calls_ == awaited_) bell_.ring();
      CO_TRY(auto operation, group.start(calls.back()->call(fmt::format("round {}", round))));
      operations.push_back(std::move(operation));
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      CO_TRY_DO(co_await group.wait(world, operations[i], kPatience));
      const std::string wrong = calls[i]->wrong(reductions_);
      sim_.check(wrong.empty(), "rank {} in epoch {}, round {}, group {}: {}", fabric.rank(),
                 fabric.epoch(), round, group.name(), wrong);
      ++checked_;
    }
    co_return Result<void>{};
  }

  Simulator& sim_;
  Plan plan_;
  std::vector<std::vector<std::vector<uint32_t>>> splits_;
  std::vector<int64_t> done_;  // rounds, by rank; outlives its process, as the vault does
  Reductions reductions_;
  Alarm bell_;
  uint64_t calls_ = 0;
  uint64_t awaited_ = 0;
  uint64_t checked_ = 0;
};

// In the midst of calls.
Task<Result<void>> kill_ranks(Simulator& sim, SimGang& gang, Work& work, uint64_t kills,
                              uint64_t calls) {
  SimRandom random(draw(sim.options().seed, 10));
  for (uint64_t i = 0; i < kills && !gang.over(); ++i) {
    CO_TRY_DO(co_await work.calls_begun(1 + random.below(calls)));
    const auto late = Duration(static_cast<int64_t>(random.below(300'000)));
    CO_TRY_DO(co_await sim.clock().sleep(late));
    gang.kill(static_cast<uint32_t>(random.below(gang.size())));
  }
  co_return Result<void>{};
}

Task<Result<void>> cut_links(Simulator& sim, uint64_t cuts) {
  SimRandom random(draw(sim.options().seed, 11));
  for (uint64_t i = 0; i < cuts; ++i) {
    const auto quiet = Duration(static_cast<int64_t>(random.below(20'000'000)));
    CO_TRY_DO(co_await sim.clock().sleep(quiet));
    const HostSet a = HostSet::one(static_cast<uint32_t>(random.below(sim.hosts())));
    const HostSet b = HostSet::one(static_cast<uint32_t>(random.below(sim.hosts())));
    const uint64_t number =
        random.below(2) == 0 ? sim.links().partition(a, b) : sim.links().add(a, b, {.cut = true});
    // Some last until connections are given up.
    const uint64_t longest = random.below(4) == 0 ? 30'000'000'000 : 300'000'000;
    const auto length = Duration(static_cast<int64_t>(random.below(longest)));
    CO_TRY_DO(co_await sim.clock().sleep(length));
    sim.links().heal(number);
  }
  co_return Result<void>{};
}

std::vector<uint32_t> place_ranks(Simulator& sim) {
  SimRandom random(draw(sim.options().seed, 12));
  const auto each = static_cast<uint32_t>(sim.setting("ranks", 0));
  std::vector<uint32_t> nodes;
  for (uint32_t host = 0; host < sim.hosts(); ++host) {
    const uint32_t count = each != 0 ? each : 1 + static_cast<uint32_t>(random.below(kMostRanks));
    nodes.insert(nodes.end(), count, host);
  }
  return nodes;
}

Task<Result<void>> run(Simulator& sim, Duration length, std::shared_ptr<GangWires> wires) {
  const auto ranks = static_cast<uint32_t>(wires->nodes().size());
  const bool many = ranks > kManyRanks;
  const bool faults = sim.options().faults.name != "none";
  const auto rounds = static_cast<uint64_t>(sim.setting("rounds", 12));
  const auto kills = static_cast<uint64_t>(sim.setting("kills", 3));
  const auto elements = static_cast<uint64_t>(sim.setting("elements", many ? 32'768 : 20'000));
  Work work(sim, {.seed = sim.options().seed,
                  .ranks = ranks,
                  .rounds = rounds,
                  .most_elements = elements,
                  .pause = faults ? length / static_cast<int64_t>(rounds) : 400us});
  const auto gang = SimGang::make(
      sim, {.wires = std::move(wires),
            .body = [&](Fabric& fabric, World& world) { return work.go_on(fabric, world); },
            .patience = kPatience});
  gang->start();
  Scope troubles;
  troubles.spawn(kill_ranks(sim, *gang, work, kills, ranks * rounds / (kills + 1) + 1));
  troubles.spawn(cut_links(sim, many ? 1 : 3));
  if (faults) CO_TRY_DO(co_await suffer(sim, length));
  auto finished = co_await gang->finish();
  troubles.cancel();
  (void)co_await troubles.join();
  sim.figure("ranks", ranks);
  sim.figure("epochs", static_cast<double>(gang->epoch()));
  sim.figure("deaths", static_cast<double>(gang->deaths()));
  sim.figure("calls_checked", static_cast<double>(work.checked()));
  co_return finished;
}

Task<Result<void>> run_over_flows(Simulator& sim, Duration length) {
  std::vector<uint32_t> nodes = place_ranks(sim);
  NetModel model;
  if (nodes.size() > kManyRanks) model.resolve_ns = kCoarseNs;
  auto wires = std::make_shared<FlowWires>(sim, model, std::move(nodes));
  auto ran = co_await run(sim, length, wires);
  sim.figure("flow_solves", static_cast<double>(wires->hub().net().solves()));
  co_return ran;
}

Task<Result<void>> run_over_tcp(Simulator& sim, Duration length) {
  constexpr uint64_t kShaken[] = {0, 300, 60};
  const uint64_t seed = sim.options().seed;
  TcpWiresOptions options{.seed = seed,
                          .shaken_one_in = kShaken[draw(seed, 20) % std::size(kShaken)],
                          .streams = 1 + static_cast<uint32_t>(draw(seed, 21) % 2),
                          .encrypt = draw(seed, 22) % 5 == 0};
  auto wires = std::make_shared<TcpWires>(place_ranks(sim), options);
  auto ran = co_await run(sim, length, wires);
  sim.figure("links_broken", static_cast<double>(wires->counters().broken));
  sim.figure("frames_damaged", static_cast<double>(wires->counters().corrupt));
  co_return ran;
}

}  // namespace

const Scenario kFabric = {
    "fabric", "ranks call random collectives while they die, over a modelled network",
    4,        1,
    4s,       run_over_flows};
const Scenario kFabricTcp = {
    "fabric-tcp", "the same over TCP, with cut, broken and damaged connections", 4, 1, 4s,
    run_over_tcp};

}  // namespace tutti::sims
