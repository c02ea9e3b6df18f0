#include "fabric/tuning.h"

#include <doctest/doctest.h>

#include <cstring>

#include "fabric/fabric_fixture_test.h"
#include "fabric/tuning_trials.h"

namespace tutti {
namespace {

using What = TuningTrial::What;

const TuningShape kShape{.cores = 8, .ranks = 4, .hosts = 1};
constexpr std::string_view kProcessor = "Test 9000";

Tuning unusual() {
  Tuning tuning = Tuning::defaults(true, 1);
  tuning.small_bytes = 4 << 10;
  tuning.stream_bytes = 48 << 20;
  tuning.reduces[3] = RailWay::halving;
  tuning.gathers[2] = RailWay::ring;
  tuning.origin = TuningOrigin::cached;
  return tuning;
}

TEST_CASE("a tuning is read as it was written") {
  const std::string text = tuning_text(unusual(), kShape, kProcessor);
  const auto read = parse_tuning(text, kShape, kProcessor);
  REQUIRE_MESSAGE(read.has_value(), read.error().text());
  CHECK(*read == unusual());
  CHECK(Tuning::of(unusual().words()) == unusual());
}

TEST_CASE("a tuning with any byte changed, cut off anywhere, or of another machine is refused") {
  const std::string text = tuning_text(unusual(), kShape, kProcessor);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    CHECK_FALSE(parse_tuning(damaged, kShape, kProcessor).has_value());
    CHECK_FALSE(parse_tuning(text.substr(0, i), kShape, kProcessor).has_value());
  }
  CHECK_FALSE(parse_tuning(text, kShape, "another").has_value());
  CHECK_FALSE(parse_tuning(text, {.cores = 8, .ranks = 5, .hosts = 1}, kProcessor).has_value());
  CHECK(tuning_file_name(kShape, kProcessor) != tuning_file_name(kShape, "another"));
}

TEST_CASE("words that are no tuning are not believed") {
  const TuningWords good = unusual().words();
  const auto with = [&](size_t index, uint64_t word) {
    TuningWords words = good;
    words[index] = word;
    return Tuning::of(words);
  };
  CHECK(with(1, kSmallBytes).has_value());
  CHECK_FALSE(with(0, 99).has_value());
  CHECK_FALSE(with(1, kSmallBytes + 1).has_value());
  CHECK_FALSE(with(2, ~uint64_t{0}).has_value());
  CHECK_FALSE(with(3, 4).has_value());
  CHECK_FALSE(with(3, static_cast<uint64_t>(RailWay::ring)).has_value());
  CHECK_FALSE(with(4, uint64_t{1} << 32).has_value());
  CHECK_FALSE(with(5, 3).has_value());
}

// Does all trials, each of which takes what `cost` says.
Tuning decided(uint32_t hosts, const std::function<Duration(const TuningTrial&)>& cost) {
  TuningTrials trials(Tuning::defaults(true, hosts), hosts);
  for (Duration passed(0);;) {
    const int next = trials.next(passed);
    if (next < 0) break;
    const Duration took = cost(trials.list()[static_cast<size_t>(next)]);
    trials.note(static_cast<size_t>(next), took);
    passed += took;
  }
  return trials.decide();
}

TEST_CASE("what was clearly faster is chosen, and the defaults stay where nothing was") {
  const auto same = decided(1, [](const TuningTrial&) { return 10us; });
  CHECK(same.small_bytes == Tuning::defaults(true, 1).small_bytes);
  CHECK(same.stream_bytes == Tuning::defaults(true, 1).stream_bytes);
  CHECK(same.origin == TuningOrigin::measured);

  const auto one_tick_to_8k = [](const TuningTrial& trial) {
    const bool once = trial.bytes <= 8 << 10;
    return trial.what == What::small && trial.wanted == once ? 8us : 10us;
  };
  CHECK(decided(1, one_tick_to_8k).small_bytes == 8 << 10);
  const auto never_one_tick = [](const TuningTrial& trial) { return trial.wanted ? 10us : 5us; };
  CHECK(decided(1, never_one_tick).small_bytes == 256);
  CHECK(decided(1, never_one_tick).stream_bytes == 96 << 20);
  const auto always_streams = [](const TuningTrial& trial) { return trial.wanted ? 5us : 10us; };
  CHECK(decided(1, always_streams).stream_bytes == 6 << 20);

  const auto trees = [](const TuningTrial& trial) {
    return trial.way == RailWay::tree || trial.way == RailWay::ring ? 1us : 2us;
  };
  const Tuning ways = decided(2, trees);
  for (size_t i = 0; i < kRailClasses; ++i) {
    CHECK(ways.reduces[i] == RailWay::tree);
    CHECK(ways.gathers[i] == RailWay::ring);
  }
}

TEST_CASE("trials end when their time is up, and none is begun that would not end in time") {
  int largest = 0;
  Duration passed(0);
  const auto slow = [&](const TuningTrial& trial) {
    const Duration took = std::chrono::nanoseconds(20 * trial.bytes);  // 50 MB/s
    largest += trial.bytes == 2 << 20 ? 1 : 0;
    passed += took;
    return took;
  };
  CHECK(decided(2, slow).reduces[3] == RailWay::direct);
  CHECK(passed <= 200ms);
  CHECK(largest == 3);  // of five ways
  passed = {};
  (void)decided(2, [&](const TuningTrial&) {
    passed += 1s;
    return 1s;
  });
  CHECK(passed == 1s);  // nothing was known of the first
}

class MemoryStore final : public TuningStore {
 public:
  std::optional<Tuning> load(const TuningShape&) override {
    ++loads;
    return kept;
  }
  void save(const TuningShape& shape, const Tuning& tuning) override {
    ++saves;
    kept = tuning;
    ranks = shape.ranks;
  }
  std::optional<Tuning> kept;
  int loads = 0;
  int saves = 0;
  uint32_t ranks = 0;
};

float at(uint32_t rank, uint64_t i) { return static_cast<float>(rank + 1) * 0.1F + i % 13; }

// Sums of several sizes; whether all were right.
bool sums_fit(Fabric& fabric, std::initializer_list<uint64_t> sizes) {
  for (const uint64_t elements : sizes) {
    std::vector<float> data(elements);
    for (uint64_t i = 0; i < elements; ++i) data[i] = at(fabric.rank(), i);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    const auto done = fabric.world()->run({.kind = CallKind::all_reduce,
                                           .elements = elements,
                                           .input = bytes,
                                           .output = bytes,
                                           .site = "test"});
    if (!done) return false;
    for (uint64_t i = 0; i < elements; ++i)
      if (data[i] != at(0, i) + at(1, i)) return false;
  }
  return true;
}

TEST_CASE("the first large all_reduce measures, all ranks choose alike, and the next finds it") {
  MemoryStore store;
  SharedHost host(2);
  host.tune = TuneWhen::lazily;
  host.tunings = &store;
  std::vector<TuningWords> words(2);
  host.run([&](Fabric& fabric) {
    CHECK(fabric.tuning().origin == TuningOrigin::defaults);
    CHECK(sums_fit(fabric, {1, 1000, 5000}));
    CHECK(fabric.tuning().origin == TuningOrigin::defaults);
    CHECK(sums_fit(fabric, {300'000, 1, 200, 500, 2000, 5000, 8192, 20'000, 300'000}));
    CHECK(fabric.tuning().origin == TuningOrigin::measured);
    CHECK(fabric.world()->tuning() == fabric.tuning());
    words[fabric.rank()] = fabric.tuning().words();
    // Groups that are made later have it too.
    const auto pair = fabric.group({1, 0}, "pair");
    REQUIRE(pair.has_value());
    CHECK((*pair)->tuning() == fabric.tuning());
  });
  CHECK(words[0] == words[1]);
  CHECK(store.saves == 1);
  CHECK(store.ranks == 2);
  REQUIRE(store.kept.has_value());
  store.kept->origin = TuningOrigin::cached;
  store.kept->small_bytes = 16 << 10;

  SharedHost again(2);
  again.tune = TuneWhen::lazily;
  again.tunings = &store;
  again.run([&](Fabric& fabric) {
    CHECK(fabric.tuning() == *store.kept);
    CHECK(sums_fit(fabric, {300'000, 4096, 4097}));
    CHECK(fabric.tuning() == *store.kept);
  });
  CHECK(store.saves == 1);
}

TEST_CASE("calls that were begun before the measurement are done after it, with the new limit") {
  MemoryStore store;
  SharedHost host(2);
  host.tune = TuneWhen::lazily;
  host.tunings = &store;
  host.run([&](Fabric& fabric) {
    Group& world = *fabric.world();
    std::vector<std::vector<float>> data;
    for (const uint64_t elements : {300'000, 200, 300, 1000, 3000, 8000, 9000})
      data.emplace_back(elements, static_cast<float>(fabric.rank() + 1));
    std::vector<std::shared_ptr<Operation>> begun;
    for (auto& each : data) {
      auto* bytes = reinterpret_cast<std::byte*>(each.data());
      const auto started = world.start({.kind = CallKind::all_reduce,
                                        .elements = each.size(),
                                        .input = bytes,
                                        .output = bytes,
                                        .site = "test"});
      REQUIRE(started.has_value());
      begun.push_back(*started);
      // One of them begins the rest only afterwards.
      if (fabric.rank() == 0) REQUIRE(world.wait(*begun.back()).has_value());
    }
    for (auto& each : begun) REQUIRE(world.wait(*each).has_value());
    for (const auto& each : data) CHECK(std::ranges::count(each, 3.0F) == std::ssize(each));
  });
  CHECK(store.saves == 1);
}

TEST_CASE("ranks of one host follow rank 0, whatever the others were told") {
  MemoryStore store;
  SharedHost host(2);
  host.tunings = &store;
  host.tune_of = {TuneWhen::now, TuneWhen::never};
  host.run([&](Fabric& fabric) {
    CHECK(fabric.tuning().origin == TuningOrigin::measured);
    CHECK(sums_fit(fabric, {1, 1000, 300'000}));
  });
  CHECK(store.loads == 0);
  CHECK(store.saves == 1);
  SharedHost off(2);
  off.tunings = &store;
  off.tune_of = {TuneWhen::never, TuneWhen::now};
  off.run([&](Fabric& fabric) {
    CHECK(sums_fit(fabric, {1, 1000, 300'000}));
    CHECK(fabric.tuning().origin == TuningOrigin::defaults);
  });
  CHECK(store.saves == 1);
}

TEST_CASE("ranks that share cores do not measure by themselves") {
  MemoryStore store;
  SharedHost host(4);
  host.tune = TuneWhen::lazily;
  host.tunings = &store;
  host.run([&](Fabric& fabric) {
    std::vector<float> data(300'000);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    REQUIRE(fabric.world()
                ->run({.kind = CallKind::all_reduce,
                       .elements = data.size(),
                       .input = bytes,
                       .output = bytes})
                .has_value());
    CHECK(fabric.tuning().origin == TuningOrigin::defaults);
  });
  CHECK(store.loads == 1);
  CHECK(store.saves == 0);
}

TEST_CASE("without memory for trials the defaults stay, and nothing is kept") {
  MemoryStore store;
  SharedHost host(2, 32 << 20);
  host.tune = TuneWhen::now;
  host.tunings = &store;
  host.run([&](Fabric& fabric) {
    CHECK(fabric.tuning().origin == TuningOrigin::defaults);
    CHECK(sums_fit(fabric, {1, 1000, 300'000}));
  });
  CHECK(store.saves == 0);
}

}  // namespace
}  // namespace tutti
