// For tests: the ranks of a gang on simulated hosts, with what a keeper and an agent do for them.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <vector>

#include "fabric/group.h"
#include "fabric/mail_transport_test.h"
#include "world/sim/simulator.h"

namespace tutti {

// A rank awaits; it never stands still.
class SimParking final : public Parking {
 public:
  explicit SimParking(World& world) : world_(world) {}
  Instant now() const override { return world_.clock().now(); }
  void yield() override { TUTTI_ASSERT(false, "a simulated rank awaits"); }
  void park(const std::atomic<uint32_t>&, uint32_t, Instant) override { yield(); }
  void wake_all(std::atomic<uint32_t>& word) override { world_.memory().wake_all(word); }
  Result<void> populate(MutableBytes) override { return {}; }
  void discard(MutableBytes) override {}

 private:
  World& world_;
};

// Strands of the rank's own process.
class SimEngine final : public Engine {
 public:
  SimEngine(World& world, Scope& scope) : world_(world), scope_(scope) {}
  bool post(std::function<void()> work) override {
    if (!dead_) scope_.spawn(run(std::move(work)));
    return !dead_;
  }
  void die() { dead_ = true; }
  void wait_until(const std::atomic<bool>&) override {}
  World& world() override { return world_; }
  Scope& scope() override { return scope_; }

 private:
  static Task<void> run(std::function<void()> work) {
    work();
    co_return;
  }
  World& world_;
  Scope& scope_;
  bool dead_ = false;
};

class FixedWiring final : public Wiring {
 public:
  FixedWiring(std::vector<uint32_t> nodes, std::unique_ptr<Transport> transport)
      : nodes_(std::move(nodes)), transport_(std::move(transport)) {}
  Task<Result<std::vector<uint32_t>>> begin_epoch(uint64_t epoch) override {
    transport_->begin_epoch(epoch);
    co_return nodes_;
  }
  Transport& transport() override { return *transport_; }

 private:
  std::vector<uint32_t> nodes_;
  std::unique_ptr<Transport> transport_;
};

class SimGang {
 public:
  static constexpr uint64_t kBytesEach = 32 << 20;
  static constexpr Duration kPatience = 60s;
  // What a rank does from its join() on; again from the beginning after a loss.
  using Body = std::function<Task<Result<void>>(Fabric&, World&)>;

  // So many ranks on each host.
  SimGang(Simulator& sim, std::vector<uint32_t> on_hosts, Body body)
      : sim_(sim), body_(std::move(body)) {
    for (uint32_t host = 0; host < on_hosts.size(); ++host) {
      Host here{.parking = std::make_unique<SimParking>(sim.host(host))};
      Memory& memory = sim.host(host).memory();
      here.heap = *memory.create_arena("heap", on_hosts[host] * kBytesEach);
      here.control = *memory.create_arena("control", on_hosts[host] * TUTTI_CONTROL_BYTES);
      here.pages = *memory.map(here.control, 0, on_hosts[host] * TUTTI_CONTROL_BYTES, true);
      hosts_.push_back(std::move(here));
      for (uint32_t slot = 0; slot < on_hosts[host]; ++slot) {
        nodes_.push_back(host);
        slots_.push_back(slot);
      }
    }
    lives_.resize(nodes_.size());
    engines_.resize(nodes_.size());
    for (uint32_t rank = 0; rank < size(); ++rank) begin_page(rank);
  }

  ~SimGang() {
    for (auto& grave : graves_)
      if (grave->engine != nullptr) grave->engine->die();
  }

  TuneWhen tune = TuneWhen::never;

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t node_of(uint32_t rank) const { return nodes_[rank]; }
  PostOffice& office() { return office_; }
  uint64_t finished() const { return finished_; }
  uint64_t losses() const { return losses_; }

  void start_all() {
    for (uint32_t rank = 0; rank < size(); ++rank) start(rank);
  }
  bool runs(uint32_t rank) const { return lives_[rank]->size() != 0; }

  // As its keeper sees it; other hosts hear of it through hear_of().
  void kill(uint32_t victim) {
    if (engines_[victim] != nullptr) engines_[victim]->die();
    lives_[victim]->kill();
    office_.epochs.erase(victim);
    for (uint32_t rank = 0; rank < size(); ++rank)
      if (rank != victim && nodes_[rank] == nodes_[victim]) end_epoch(rank, victim);
  }
  void hear_of(uint32_t victim) {
    for (uint32_t rank = 0; rank < size(); ++rank)
      if (nodes_[rank] != nodes_[victim]) end_epoch(rank, victim);
  }
  // As the agents do: the dead rank is replaced.
  void begin_epoch(uint32_t replaced) {
    ++epoch_;
    begin_page(replaced);
    for (uint32_t rank = 0; rank < size(); ++rank) {
      page(rank).dead_count = 0;
      page(rank).epoch = epoch_;
      ring(rank);
    }
    start(replaced);
  }
  Task<void> join() {
    for (auto& life : lives_) (void)co_await life->join();
  }

 private:
  struct Host {
    std::unique_ptr<SimParking> parking;
    Handle heap = {};
    Handle control = {};
    std::unique_ptr<Mapping> pages = {};
  };
  // Of a killed process only memory is left, and it does not take its leave.
  struct Grave {
    std::unique_ptr<SimEngine> engine;
    std::unique_ptr<FixedWiring> wiring;
    std::unique_ptr<Fabric> fabric;
  };

  tutti_control_page& page(uint32_t rank) {
    return *reinterpret_cast<tutti_control_page*>(hosts_[nodes_[rank]].pages->bytes().data() +
                                                  slots_[rank] * TUTTI_CONTROL_BYTES);
  }
  void begin_page(uint32_t rank) {
    const uint32_t word = page(rank).word;
    page(rank) = {};
    page(rank).word = word + 1;
    page(rank).rank = rank;
    page(rank).epoch = epoch_;
    page(rank).pid = ++next_pid_;
    page(rank).magic = TUTTI_CONTROL_MAGIC;
  }
  void ring(uint32_t rank) {
    auto& word = reinterpret_cast<std::atomic<uint32_t>&>(page(rank).word);
    ++word;
    sim_.host(nodes_[rank]).memory().wake_all(word);
  }
  void end_epoch(uint32_t rank, uint32_t victim) {
    page(rank).dead[0] = uint64_t{victim} | uint64_t{victim} << 32;
    page(rank).dead_count = 1;
    page(rank).aborted = page(rank).epoch;
    ring(rank);
  }
  void start(uint32_t rank) {
    if (lives_[rank] != nullptr) old_lives_.push_back(std::move(lives_[rank]));
    lives_[rank] = std::make_unique<Scope>(Scope::Root{});
    lives_[rank]->spawn(live(rank));
  }

  Task<void> live(uint32_t rank) {
    Host& host = hosts_[nodes_[rank]];
    World& world = sim_.host(nodes_[rank]);
    auto& grave = graves_.emplace_back(std::make_unique<Grave>());
    FabricOptions options{.slot = slots_[rank],
                          .gang = 1,
                          .rank = rank,
                          .world_size = size(),
                          .cores = tune == TuneWhen::never ? 1U : 2U,
                          .timeout = kPatience,
                          .tune = tune};
    options.heap = *world.memory().map(host.heap, 0, *world.memory().arena_size(host.heap), true);
    options.control =
        *world.memory().map(host.control, 0, *world.memory().arena_size(host.control), true);
    if (hosts_.size() > 1) {
      grave->engine = std::make_unique<SimEngine>(world, *lives_[rank]);
      grave->wiring = std::make_unique<FixedWiring>(
          nodes_, std::make_unique<MailTransport>(world, office_, rank, options.heap->bytes()));
      options.engine = engines_[rank] = grave->engine.get();
      options.wiring = grave->wiring.get();
    }
    auto opened = Fabric::open(*host.parking, std::move(options));
    REQUIRE(opened.has_value());
    grave->fabric = *std::move(opened);
    Fabric& fabric = *grave->fabric;
    while (true) {
      auto joined = co_await fabric.join(world, kPatience);
      if (!joined && joined.error().code() == Code::not_found) break;  // killed last of all
      if (!joined && joined.error().code() == Code::unavailable) continue;
      REQUIRE_MESSAGE(joined.has_value(), joined.error().text());
      auto went = co_await body_(fabric, world);
      if (went) break;
      CHECK_MESSAGE(went.error().code() == Code::unavailable, went.error().text());
      const auto lost = fabric.lost();
      CHECK(std::ranges::count(lost, rank) == 0);
      ++losses_;
    }
    fabric.leave();
    ++finished_;
  }

  Simulator& sim_;
  Body body_;
  std::vector<Host> hosts_;
  std::vector<uint32_t> nodes_;  // by rank
  std::vector<uint32_t> slots_;
  PostOffice office_;
  uint64_t epoch_ = 1;
  int32_t next_pid_ = 0;
  std::vector<std::unique_ptr<Grave>> graves_;
  std::vector<SimEngine*> engines_;  // of those who live, if there are several hosts
  std::vector<std::unique_ptr<Scope>> lives_;
  std::vector<std::unique_ptr<Scope>> old_lives_;
  uint64_t finished_ = 0;
  uint64_t losses_ = 0;
};

// A call of a simulated rank.
inline Task<Result<void>> call_in(World& world, Group& group, Call call) {
  CO_TRY(auto operation, group.start(std::move(call)));
  auto waited = co_await group.wait(world, std::move(operation), SimGang::kPatience);
  co_return waited;
}

}  // namespace tutti
