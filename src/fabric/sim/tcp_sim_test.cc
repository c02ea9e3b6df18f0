// Ranks on simulated hosts whose links are cut, whose bytes are damaged and whose processes are
// killed and replaced, again and again: no wrong byte, nothing twice, no hang, and the same for the
// same seed.
#include <algorithm>
#include <random>
#include <set>

#include "fabric/sim/shaky_world.h"
#include "fabric/tcp_fixture_test.h"
#include "world/alarm.h"
#include "world/sim/simulator.h"

namespace tutti {
namespace {

struct Plan {
  uint32_t ranks = 3;
  uint64_t rounds = 6;
  int kills = 2;
  int cuts = 4;
  uint64_t shaken_one_in = 0;
  uint32_t streams = 1;
  bool encrypt = false;
};

constexpr uint64_t kHeap = 1 << 20;

class Stage {
 public:
  Stage(Simulator& sim, const Plan& plan, uint64_t seed) : sim_(sim), plan_(plan), random_(seed) {
    for (uint32_t rank = 0; rank < plan.ranks; ++rank) {
      places_.push_back(std::make_unique<Place>(sim.host(rank), seed * 100 + rank, plan));
      places_.back()->page = std::make_unique<MemoryBook::Page>(book_, rank);
    }
  }
  ~Stage() {
    for (auto& place : places_) place->life->kill();
  }

  Task<Result<void>> run() {
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) begin_life(rank);
    Scope trouble;
    trouble.spawn(cut_links());
    for (int i = 0; i < plan_.kills; ++i) {
      (void)co_await sim_.clock().sleep(Duration(random_() % 12'000'000));
      const auto victim = static_cast<uint32_t>(random_() % plan_.ranks);
      if (finished() == plan_.ranks) break;
      places_[victim]->life->kill();
      places_[victim]->done = false;
      (void)co_await sim_.clock().sleep(Duration(random_() % 50'000'000));
      ++epoch_;
      begin_life(victim);
      // Each hears of it at a time of its own.
      for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
        if (rank != victim) tell(rank);
        (void)co_await sim_.clock().sleep(Duration(random_() % 5'000'000));
      }
    }
    while (finished() < plan_.ranks) (void)co_await sim_.clock().sleep(10ms);
    trouble.cancel();
    (void)co_await trouble.join();
    for (auto& place : places_) (void)co_await place->life->join();
    co_return {};
  }

  uint64_t wrong = 0;
  uint64_t exchanged = 0;
  uint64_t losses = 0;
  TcpCounters total;

 private:
  struct Place {
    Place(World& host, uint64_t seed, const Plan& plan)
        : world(host, seed, plan.shaken_one_in), news(host.clock()) {}
    ShakyWorld world;
    std::unique_ptr<MemoryBook::Page> page;
    std::string heap = std::string(kHeap, '\0');
    std::unique_ptr<Scope> life;
    TcpTransport* transport = nullptr;
    Alarm news;
    uint64_t epoch = 0;
    uint64_t round = 0;  // survives its process, as the vault does
    bool done = false;
  };

  size_t finished() const {
    return static_cast<size_t>(
        std::ranges::count_if(places_, [](const auto& place) { return place->done; }));
  }
  void begin_life(uint32_t rank) {
    Place& place = *places_[rank];
    place.transport = nullptr;
    place.done = false;
    place.epoch = epoch_;
    if (place.life) place.life->kill();
    place.life = std::make_unique<Scope>(Scope::Root{});
    place.life->spawn(live(rank));
  }
  void tell(uint32_t rank) {
    Place& place = *places_[rank];
    place.epoch = epoch_;
    if (place.transport != nullptr) place.transport->end_epoch({Code::unavailable, "a rank died"});
    place.news.ring();
  }

  Task<void> cut_links() {
    for (int i = 0; i < plan_.cuts; ++i) {
      auto slept = co_await sim_.clock().sleep(Duration(random_() % 200'000'000));
      if (!slept) co_return;
      const HostSet a = HostSet::one(static_cast<uint32_t>(random_() % plan_.ranks));
      const HostSet b = HostSet::one(static_cast<uint32_t>(random_() % plan_.ranks));
      const uint64_t number =
          random_() % 2 == 0 ? sim_.links().partition(a, b) : sim_.links().add(a, b, {.cut = true});
      // Some last until everybody gives the connection up.
      const uint64_t longest = random_() % 3 == 0 ? 30'000'000'000 : 500'000'000;
      (void)co_await sim_.clock().sleep(Duration(static_cast<int64_t>(random_() % longest)));
      sim_.links().heal(number);
    }
  }

  Task<void> live(uint32_t rank) {
    Place& place = *places_[rank];
    TcpOptions options{.world = place.world,
                       .addresses = *place.page,
                       .rank = rank,
                       .world_size = plan_.ranks,
                       .key = test_key(),
                       .listen = Address::tcp(sim_host_name(rank), 0),
                       .heap = as_mutable_bytes(place.heap),
                       .may_put = [](uint64_t, uint64_t) { return true; },
                       .streams = plan_.streams,
                       .encrypt = plan_.encrypt};
    auto opened = co_await TcpTransport::open(std::move(options));
    REQUIRE_MESSAGE(opened.has_value(), opened.error().text());
    TcpTransport& transport = **opened;
    place.transport = &transport;
    uint64_t epoch = 0;
    while (!place.done) {
      if (place.epoch == epoch) (void)co_await place.news.until(kNever);
      if (place.epoch == epoch) continue;
      epoch = place.epoch;
      transport.begin_epoch(epoch);
      auto went = co_await go_on(rank, transport, epoch);
      if (went) place.done = true;
      if (!went) CHECK(went.error().message() == "a rank died");
      if (!went) ++losses;
    }
    // Others may be finishing, or have died before they did.
    while (finished() < plan_.ranks) {
      (void)co_await place.world.clock().sleep(1ms);
      if (place.epoch == epoch) continue;
      epoch = place.epoch;
      place.done = false;
      transport.begin_epoch(epoch);
      auto went = co_await go_on(rank, transport, epoch);
      place.done = went.has_value();
    }
    const TcpCounters& counters = transport.counters();
    total.broken += counters.broken;
    total.corrupt += counters.corrupt;
    total.resent += counters.resent;
    total.duplicates += counters.duplicates;
    place.transport = nullptr;
    co_await transport.stop();
  }

  static size_t size_of(uint64_t round, uint32_t from, uint32_t to) {
    const uint64_t draw = mix(round * 10'000 + from * 100 + to);
    return draw % 3 == 0 ? draw % 900'000 : draw % 20'000;
  }
  static uint64_t mix(uint64_t x) { return (x ^ x >> 29) * 0xBF58476D1CE4E5B9U % 1'000'000'007; }
  static uint64_t content(uint64_t round, uint32_t from, uint32_t to) {
    return round * 10'000 + from * 100 + to;
  }

  // All ranks agree on the round that the last of them is in, and go on from there.
  Task<Result<void>> go_on(uint32_t rank, TcpTransport& transport, uint64_t epoch) {
    Place& place = *places_[rank];
    std::vector<uint64_t> theirs(plan_.ranks);
    Scope scope;
    Outcomes outcomes;
    uint64_t mine = place.round;
    for (uint32_t other = 0; other < plan_.ranks; ++other) {
      const auto out = std::as_bytes(std::span(&mine, 1));
      const auto in = std::as_writable_bytes(std::span(&theirs[other], 1));
      start(scope, outcomes, transport.send(other, {epoch, 0}, out, Priority::urgent));
      start(scope, outcomes, transport.receive(other, {epoch, 0}, in));
    }
    (void)co_await scope.join();
    for (const auto& result : outcomes.results)
      if (!*result) co_return fail(result->error());
    place.round = std::ranges::min(theirs);
    while (place.round < plan_.rounds) {
      auto done = co_await round(rank, transport, place.round);
      if (!done) co_return done;
      ++place.round;
    }
    co_return {};
  }

  Task<Result<void>> round(uint32_t rank, TcpTransport& transport, uint64_t round) {
    std::vector<std::string> sent(plan_.ranks);
    std::vector<std::string> came(plan_.ranks);
    std::vector<std::string> put(plan_.ranks);
    Scope scope;
    Outcomes outcomes;
    for (uint32_t other = 0; other < plan_.ranks; ++other) {
      sent[other] = pattern(size_of(round, rank, other), content(round, rank, other));
      came[other].resize(size_of(round, other, rank));
      // The same tag in every round: what came late or twice would be seen.
      const auto priority = static_cast<Priority>((round + other) % 3);
      start(scope, outcomes, transport.send(other, {9, rank}, as_bytes(sent[other]), priority));
      start(scope, outcomes, transport.receive(other, {9, other}, as_mutable_bytes(came[other])));
      // To a place of our own in the heap of the other, and back.
      put[other] = pattern(kHeap / 8, content(round, rank, other) + 77);
      start(scope, outcomes, put_and_get(transport, rank, other, put[other]));
    }
    (void)co_await scope.join();
    for (const auto& result : outcomes.results)
      if (!*result) co_return fail(result->error());
    for (uint32_t other = 0; other < plan_.ranks; ++other) {
      ++exchanged;
      wrong += came[other] != pattern(came[other].size(), content(round, other, rank));
    }
    co_return {};
  }

  Task<Result<void>> put_and_get(TcpTransport& transport, uint32_t rank, uint32_t other,
                                 const std::string& text) {
    const uint64_t offset = rank * kHeap / 8 + 3 * rank;
    auto done = co_await transport.put(other, offset, as_bytes(text));
    if (!done) co_return done;
    std::string back(text.size(), '\0');
    done = co_await transport.get(other, offset, as_mutable_bytes(back));
    if (!done) co_return done;
    wrong += back != text;
    // And every second kilobyte of it.
    Strides apart{.offset = offset, .run = 1024};
    apart.repeat(text.size() / 2048, 2048);
    std::string some(apart.bytes(), '\0');
    done = co_await transport.get(other, apart, as_mutable_bytes(some));
    if (!done) co_return done;
    for (uint64_t at = 0; at < some.size(); at += 1024)
      wrong += some.compare(at, 1024, text, 2 * at, 1024) != 0;
    co_return done;
  }

  Simulator& sim_;
  Plan plan_;
  std::mt19937_64 random_;
  MemoryBook book_;
  uint64_t epoch_ = 1;
  std::vector<std::unique_ptr<Place>> places_;
};

struct Seen {
  uint64_t exchanged = 0;
  uint64_t losses = 0;
  uint64_t broken = 0;
  uint64_t corrupt = 0;
  uint64_t resent = 0;
  uint64_t duplicates = 0;
  int64_t virtual_ns = 0;
  uint64_t trace = 0;
  bool operator==(const Seen&) const = default;
};

Seen simulate(uint64_t seed, const Plan& plan) {
  SimulatorOptions options{.seed = seed, .hosts = plan.ranks};
  options.faults.code_fault_probability = seed % 2 == 0 ? 0.05 : 0;
  Simulator sim(options);
  Stage stage(sim, plan, seed);
  const auto ran = sim.run(stage.run(), 20min);
  REQUIRE_MESSAGE(ran.has_value(), ran.error().text());
  CHECK(stage.wrong == 0);
  return {stage.exchanged,    stage.losses,           stage.total.broken, stage.total.corrupt,
          stage.total.resent, stage.total.duplicates, sim.now_ns(),       sim.trace_hash()};
}

void add(Seen& total, const Seen& one) {
  total.exchanged += one.exchanged;
  total.losses += one.losses;
  total.broken += one.broken;
  total.corrupt += one.corrupt;
  total.resent += one.resent;
  total.duplicates += one.duplicates;
}

Seen soak(uint64_t seeds, Plan plan) {
  set_log_level(LogLevel::off);
  Seen total;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    plan.ranks = 2 + seed % 3;
    plan.streams = 1 + seed % 2;
    plan.encrypt = seed % 5 == 0;
    const Seen seen = simulate(seed, plan);
    add(total, seen);
    if (seed % 25 == 0) CHECK(simulate(seed, plan) == seen);
  }
  set_log_level(LogLevel::info);
  return total;
}

TEST_CASE("links that are cut for a while lose nothing, in simulation") {
  const Seen seen = soak(100, {.kills = 0, .cuts = 6});
  CHECK(seen.broken > 50);
  CHECK(seen.losses == 0);
}

TEST_CASE("links that break and damage bytes lose nothing and bring nothing twice, in simulation") {
  const Seen seen = soak(100, {.kills = 0, .cuts = 0, .shaken_one_in = 30});
  CHECK(seen.broken > 500);
  CHECK(seen.corrupt > 100);
  CHECK(seen.resent > 50);
  CHECK(seen.duplicates > 20);
}

TEST_CASE("whoever is killed and replaced, bytes are right and nobody hangs, in simulation") {
  const Seen seen = soak(100, {.rounds = 10, .kills = 5, .cuts = 3, .shaken_one_in = 200});
  CHECK(seen.losses > 100);
}

}  // namespace
}  // namespace tutti
