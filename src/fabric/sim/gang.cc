#include "fabric/sim/gang.h"

#include <algorithm>

namespace tutti {

namespace {

constexpr Duration kLook = 20ms;      // at what may not have rung
constexpr Duration kJoinPause = 1ms;  // before an epoch that was over is asked for again
constexpr uint64_t kGang = 1;

// A rank awaits; it never stands still. What is left of one that was killed may outlive its host.
class SimParking final : public Parking {
 public:
  void be_at(World* world) { world_ = world; }
  Instant now() const override { return world_ == nullptr ? Instant() : world_->clock().now(); }
  void yield() override { TUTTI_ASSERT(false, "a simulated rank awaits"); }
  void park(const std::atomic<uint32_t>&, uint32_t, Instant) override { yield(); }
  void wake_all(std::atomic<uint32_t>& word) override {
    if (world_ != nullptr) world_->memory().wake_all(word);
  }
  Result<void> populate(MutableBytes) override { return {}; }
  void discard(MutableBytes) override {}

 private:
  World* world_ = nullptr;  // null while it is down
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

}  // namespace

// What a host has from one boot to the next crash.
struct SimGang::Host {
  std::unique_ptr<SimParking> parking = std::make_unique<SimParking>();
  uint32_t first = 0;  // its ranks
  uint32_t count = 0;
  Handle heap = {};
  Handle control = {};
  std::unique_ptr<Mapping> pages = {};
  bool up = false;
};

// Of a killed process only memory is left: it does not take its leave.
struct SimGang::Process {
  Scope scope{Scope::Root{}};
  std::unique_ptr<SimEngine> engine;
  std::unique_ptr<GangWire> wire;
  std::unique_ptr<Fabric> fabric;
};

// In the frame of a host's program: it is gone when the host is.
class SimGang::Presence {
 public:
  Presence(SimGang& gang, uint32_t node) : gang_(gang), node_(node) {}
  ~Presence() { gang_.host_down(node_); }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

 private:
  SimGang& gang_;
  uint32_t node_;
};

std::shared_ptr<SimGang> SimGang::make(Simulator& sim, Options options) {
  return std::shared_ptr<SimGang>(new SimGang(sim, std::move(options)));
}

SimGang::SimGang(Simulator& sim, Options options)
    : sim_(sim),
      options_(std::move(options)),
      hosts_(sim.hosts()),
      news_(sim.clock()),
      random_(sim.random(RandomStream::director)) {
  for (const uint32_t node : options_.wires->nodes()) {
    Host& host = hosts_[node];
    if (host.count == 0) host.first = size();
    TUTTI_ASSERT(host.first + host.count == size(), "ranks of a host follow one another");
    ranks_.push_back({.node = node, .slot = host.count++});
    dead_.insert(size() - 1);
  }
}

SimGang::~SimGang() {
  for (uint32_t rank = 0; rank < size(); ++rank) bury(rank);
}

void SimGang::start() {
  sim_.set_program([gang = shared_from_this()](SimHost& host) { return gang->run_host(host); });
  sim_.scope().spawn(look_after());
  sim_.start_all();
}

// ---- Hosts ----

// As an agent and a keeper: makes the arenas, and holds them.
Task<Result<void>> SimGang::run_host(SimHost& simulated) {
  const auto self = shared_from_this();
  const uint32_t node = simulated.index();
  Host& host = hosts_[node];
  if (host.count == 0) co_return Result<void>{};
  const Presence presence(*this, node);
  Memory& memory = simulated.memory();
  host.parking->be_at(&simulated);
  CO_TRY(host.heap, memory.create_arena("heap", host.count * options_.bytes_each));
  const uint64_t control_bytes = uint64_t{host.count} * TUTTI_CONTROL_BYTES;
  CO_TRY(host.control, memory.create_arena("control", control_bytes));
  CO_TRY(host.pages, memory.map(host.control, 0, control_bytes, true));
  host.up = true;
  news_.ring();
  while (!ended_) {
    auto slept = co_await simulated.clock().sleep(1s);
    if (!slept) break;
  }
  co_return Result<void>{};
}

void SimGang::host_down(uint32_t node) {
  Host& host = hosts_[node];
  host.up = false;
  for (uint32_t rank = host.first; rank < host.first + host.count; ++rank) bury(rank);
  host.parking->be_at(nullptr);
  host.pages = nullptr;
  host.heap = {};
  host.control = {};
  news_.ring();
}

bool SimGang::all_up() const {
  return std::ranges::all_of(hosts_, [](const Host& host) { return host.up || host.count == 0; });
}

// ---- Deaths and epochs ----

// Its frames are gone at once; nobody is told here.
void SimGang::bury(uint32_t number) {
  Rank& rank = ranks_[number];
  if (rank.life == nullptr) return;
  if (rank.life->engine != nullptr) rank.life->engine->die();
  rank.life->scope.kill();
  if (rank.life->fabric != nullptr) rank.life->fabric->was_killed();
  rank.life->wire = nullptr;
  buried_.push_back(std::move(rank.life));
  if (rank.left) return;
  rank.died_in = epoch_;
  rank.finished_in = 0;
  dead_.insert(number);
  ++deaths_;
}

// Its keeper sees it at once, and tells the ranks of its host.
void SimGang::kill(uint32_t victim) {
  if (ranks_[victim].life == nullptr || ranks_[victim].left || over_) return;
  sim_.note(ranks_[victim].node, fmt::format("rank {} is killed", victim));
  bury(victim);
  const Host& host = hosts_[ranks_[victim].node];
  for (uint32_t rank = host.first; rank < host.first + host.count; ++rank)
    if (rank != victim) end_epoch(rank);
  news_.ring();
}

Task<Result<void>> SimGang::pause() {
  const int64_t most = 2 * to_ns(options_.news) / static_cast<int64_t>(hosts_.size()) + 1;
  const auto length = Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most))));
  auto slept = co_await sim_.clock().sleep(length);
  co_return slept;
}

Task<Result<void>> SimGang::look_after() {
  const auto self = shared_from_this();
  while (!over_) {
    if (dead_.empty()) {
      over_ = all_finished();
      if (over_) break;
      CO_TRY_DO(co_await news_.until(kNever));
      continue;
    }
    CO_TRY_DO(co_await tell_of_deaths());
    if (!all_up()) {
      CO_TRY_DO(co_await news_.until(kNever));
      continue;
    }
    CO_TRY_DO(co_await begin_epoch());
  }
  for (uint32_t rank = 0; rank < size(); ++rank)
    if (lives(rank)) ring(rank);
  co_return Result<void>{};
}

Task<Result<void>> SimGang::tell_of_deaths() {
  for (const Host& host : hosts_) {
    if (host.count == 0) continue;
    CO_TRY_DO(co_await pause());
    for (uint32_t rank = host.first; host.up && rank < host.first + host.count; ++rank)
      if (lives(rank)) end_epoch(rank);
  }
  co_return Result<void>{};
}

// One host after the other. When somebody dies meanwhile, the rest goes from the last epoch right
// to the one after this.
Task<Result<void>> SimGang::begin_epoch() {
  ++epoch_;
  const uint64_t deaths = deaths_;
  for (const Host& host : hosts_) {
    if (host.count == 0) continue;
    CO_TRY_DO(co_await pause());
    if (deaths_ != deaths || !all_up()) co_return Result<void>{};
    for (uint32_t rank = host.first; rank < host.first + host.count; ++rank) {
      if (dead_.erase(rank) != 0) {
        begin_page(rank);
        start_rank(rank);
      }
      page(rank).dead_count = 0;
      page(rank).epoch = epoch_;
      ring(rank);
    }
  }
  co_return Result<void>{};
}

bool SimGang::all_finished() const {
  return std::ranges::all_of(ranks_, [&](const Rank& rank) { return rank.finished_in == epoch_; });
}

bool SimGang::all_left() const {
  return over_ && std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.left; });
}

Task<Result<void>> SimGang::finish() {
  while (!all_left() && !sim_.failure()) {
    // Who dies when all are done is missed by nobody.
    for (uint32_t rank = 0; over_ && rank < size(); ++rank)
      if (!lives(rank)) ranks_[rank].left = true;
    CO_TRY_DO(co_await sim_.clock().sleep(kLook));
  }
  ended_ = true;
  co_return Result<void>{};
}

// ---- Control pages ----

tutti_control_page& SimGang::page(uint32_t rank) {
  return *reinterpret_cast<tutti_control_page*>(hosts_[ranks_[rank].node].pages->bytes().data() +
                                                ranks_[rank].slot * TUTTI_CONTROL_BYTES);
}

void SimGang::begin_page(uint32_t rank) {
  const uint32_t word = page(rank).word;
  page(rank) = {};
  page(rank).word = word + 1;
  page(rank).rank = rank;
  page(rank).epoch = epoch_;
  page(rank).pid = ++next_pid_;
  page(rank).magic = TUTTI_CONTROL_MAGIC;
}

void SimGang::ring(uint32_t rank) {
  auto& word = reinterpret_cast<std::atomic<uint32_t>&>(page(rank).word);
  ++word;
  sim_.host(ranks_[rank].node).memory().wake_all(word);
}

void SimGang::end_epoch(uint32_t rank) {
  if (!lives(rank) || dead_.empty()) return;
  uint32_t count = 0;
  page(rank).dead_truncated = 0;
  for (const uint32_t victim : dead_) {
    if (ranks_[victim].died_in < page(rank).epoch) continue;  // it was not there
    if (count == TUTTI_CONTROL_RANGES) page(rank).dead_truncated = 1;
    if (count == TUTTI_CONTROL_RANGES) break;
    page(rank).dead[count++] = uint64_t{victim} | uint64_t{victim} << 32;
  }
  page(rank).dead_count = count;
  page(rank).aborted = page(rank).epoch;
  ring(rank);
}

// ---- Ranks ----

void SimGang::start_rank(uint32_t rank) {
  ranks_[rank].life = std::make_unique<Process>();
  Process& process = *ranks_[rank].life;
  process.scope.spawn(live(rank, process));
}

Task<Result<void>> SimGang::open_fabric(uint32_t rank, Process& process) {
  Host& host = hosts_[ranks_[rank].node];
  World& world = sim_.host(ranks_[rank].node);
  Memory& memory = world.memory();
  FabricOptions options{.slot = ranks_[rank].slot,
                        .gang = kGang,
                        .rank = rank,
                        .world_size = size(),
                        .cores = options_.cores,
                        .timeout = options_.patience,
                        .tune = options_.tune};
  CO_TRY(options.heap, memory.map(host.heap, 0, host.count * options_.bytes_each, true));
  CO_TRY(options.control,
         memory.map(host.control, 0, uint64_t{host.count} * TUTTI_CONTROL_BYTES, true));
  if (host.count < size()) {
    process.engine = std::make_unique<SimEngine>(world, process.scope);
    const MutableBytes heap = options.heap->bytes();
    CO_TRY(process.wire, co_await options_.wires->open(world, rank, heap));
    options.engine = process.engine.get();
    options.wiring = process.wire.get();
  }
  CO_TRY(process.fabric, Fabric::open(*host.parking, std::move(options)));
  co_return Result<void>{};
}

Task<void> SimGang::live(uint32_t rank, Process& process) {
  World& world = sim_.host(ranks_[rank].node);
  auto opened = co_await open_fabric(rank, process);
  if (!opened) {
    sim_.check(false, "rank {} cannot open its fabric: {}", rank, opened.error().text());
    co_return;
  }
  Fabric& fabric = *process.fabric;
  while (!leaves(rank)) {
    auto took_part = co_await take_part(rank, fabric, world);
    if (!took_part) co_return;
  }
  co_await fabric.leave(world);
  if (process.wire != nullptr) co_await process.wire->close();
  ranks_[rank].left = true;
}

bool SimGang::leaves(uint32_t rank) const {
  return over_ || (!options_.stays && ranks_[rank].finished_in != 0);
}

// One epoch. Fails only with the simulation.
Task<Result<void>> SimGang::take_part(uint32_t rank, Fabric& fabric, World& world) {
  auto joined = co_await fabric.join(world, options_.patience);
  if (!joined && joined.error().code() == Code::unavailable) {
    auto slept = co_await world.clock().sleep(kJoinPause);
    co_return slept;
  }
  if (!joined) {
    sim_.check(false, "rank {} cannot join: {}", rank, joined.error().text());
    co_return joined;
  }
  auto went = co_await options_.body(fabric, world);
  if (!went) {
    check_lost(rank, fabric, went.error());
    ++losses_;
    co_return Result<void>{};
  }
  ranks_[rank].finished_in = fabric.epoch();
  news_.ring();
  if (leaves(rank)) co_return Result<void>{};
  // Others may die before they are done.
  const tutti_control_page& own = page(rank);
  const auto& word = reinterpret_cast<const std::atomic<uint32_t>&>(own.word);
  for (;;) {
    const uint32_t seen = word.load();
    if (over_ || tutti_control_epoch(&own) != fabric.epoch() ||
        tutti_control_aborted(&own, fabric.epoch()) != 0)
      break;
    const Instant until = world.clock().now() + kLook;
    auto woken = co_await world.memory().wait(word, seen, until);
    if (!woken && woken.error().code() == Code::cancelled) co_return woken;
  }
  if (!over_) ranks_[rank].finished_in = 0;
  co_return Result<void>{};
}

void SimGang::check_lost(uint32_t rank, const Fabric& fabric, const Error& error) {
  sim_.check(error.code() == Code::unavailable, "rank {} in epoch {}: {}", rank, fabric.epoch(),
             error.text());
  for (const uint32_t lost : fabric.lost())
    sim_.check(ranks_[lost].died_in >= fabric.epoch(),
               "rank {} in epoch {} says that rank {} is lost, which lives: {}", rank,
               fabric.epoch(), lost, error.text());
}

Task<Result<void>> call_in(World& world, Group& group, Call call, Duration patience) {
  CO_TRY(auto operation, group.start(std::move(call)));
  auto waited = co_await group.wait(world, std::move(operation), patience);
  co_return waited;
}

}  // namespace tutti
