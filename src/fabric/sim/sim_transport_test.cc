#include "fabric/sim/sim_transport.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "world/scope.h"

namespace tutti {
namespace {

constexpr Tag kTag{7, 1};

// Hosts of one rank each, whose work costs nothing: only the network takes time, a nanosecond for
// each byte and a microsecond of latency.
NetModel plain_model() {
  NetModel model;
  model.host_bytes_per_s = 1e9;
  model.rack_bytes_per_s = 1e12;
  model.within_rack_ns = 1'000;
  model.jitter_ns = 0;
  return model;
}

SimulatorOptions free_hosts(uint32_t hosts) {
  return {.hosts = hosts, .costs = CostTable().without_processor_time()};
}

struct Stage {
  explicit Stage(uint32_t ranks, NetModel model = plain_model())
      : sim(free_hosts(ranks)), hub(sim, std::move(model), numbers(ranks)) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      heaps.push_back(std::make_unique<std::string>(kHeap, static_cast<char>('a' + rank)));
      SimTransportOptions options{
          .rank = rank,
          .heap = as_mutable_bytes(*heaps.back()),
          .may_put = [](uint64_t offset, uint64_t) { return offset >= kHeap / 2; }};
      transports.push_back(std::make_unique<SimTransport>(hub, std::move(options)));
      transports.back()->begin_epoch(1);
    }
  }
  ~Stage() { scope.kill(); }
  static std::vector<uint32_t> numbers(uint32_t count) {
    std::vector<uint32_t> all(count);
    for (uint32_t i = 0; i < count; ++i) all[i] = i;
    return all;
  }
  SimTransport& operator[](uint32_t rank) { return *transports[rank]; }

  // What became of a call, and when.
  struct Outcome {
    std::optional<Result<void>> result;
    int64_t at_ns = -1;
    bool good() const { return result && result->has_value(); }
    std::string words() const { return result && !*result ? result->error().text() : ""; }
  };
  static Task<void> keep(Simulator& sim, Task<Result<void>> work, Outcome& outcome) {
    auto result = co_await std::move(work);
    outcome.result = std::move(result);
    outcome.at_ns = sim.now_ns();
  }
  Outcome& start(Task<Result<void>> work) {
    outcomes.push_back(std::make_unique<Outcome>());
    scope.spawn(keep(sim, std::move(work), *outcomes.back()));
    return *outcomes.back();
  }

  static constexpr size_t kHeap = 64 << 10;
  Simulator sim;
  SimHub hub;
  std::vector<std::unique_ptr<std::string>> heaps;
  std::vector<std::unique_ptr<SimTransport>> transports;
  std::vector<std::unique_ptr<Outcome>> outcomes;
  Scope scope{Scope::Root{}};
};

TEST_CASE("a small message travels at once, a large one when it is asked for") {
  Stage stage(2);
  const std::string small(1'000, 's');
  const std::string large(100'000, 'l');
  std::string got_small(small.size(), ' ');
  std::string got_large(large.size(), ' ');
  const auto& sent = stage.start(stage[0].send(1, kTag, as_bytes(small)));
  const auto& waits = stage.start(stage[0].send(1, {7, 2}, as_bytes(large)));
  stage.sim.run_for(50us);
  CHECK_FALSE(sent.result);  // there, and nobody has received it
  const auto& received = stage.start(stage[1].receive(0, kTag, as_mutable_bytes(got_small)));
  const auto& taken = stage.start(stage[1].receive(0, {7, 2}, as_mutable_bytes(got_large)));
  stage.sim.run_for(1ms);
  CHECK(received.good());
  CHECK(received.at_ns == 50'000);
  CHECK(sent.at_ns == 51'000);
  CHECK(taken.at_ns == 50'000 + 1'000 + 100'000 + 1'000);  // asked, carried, arrived
  CHECK(waits.at_ns == taken.at_ns + 1'000);
  CHECK(got_small == small);
  CHECK(got_large == large);
}

TEST_CASE("a receive that waits has a small message after its latency and its bytes") {
  Stage stage(2);
  const std::string text(1'000, 's');
  std::string got(text.size(), ' ');
  const auto& received = stage.start(stage[1].receive(0, kTag, as_mutable_bytes(got)));
  const auto& sent = stage.start(stage[0].send(1, kTag, as_bytes(text)));
  const auto& itself = stage.start(stage[0].send(0, kTag, as_bytes(text)));
  std::string own(text.size(), ' ');
  const auto& own_received = stage.start(stage[0].receive(0, kTag, as_mutable_bytes(own)));
  stage.sim.run_for(1ms);
  CHECK(received.at_ns == 2'000);
  CHECK(sent.at_ns == 3'000);
  CHECK(itself.good());
  CHECK(own_received.good());
}

TEST_CASE("sizes that differ are told to both, whichever of them is large") {
  for (const auto& [sent_bytes, expected] :
       {std::pair{10, 20}, std::pair{100'000, 20}, std::pair{20, 100'000}}) {
    Stage stage(2);
    const std::string text(static_cast<size_t>(sent_bytes), 'x');
    std::string room(static_cast<size_t>(expected), ' ');
    const auto& sent = stage.start(stage[0].send(1, kTag, as_bytes(text)));
    const auto& received = stage.start(stage[1].receive(0, kTag, as_mutable_bytes(room)));
    stage.sim.run_for(1s);
    for (const auto* outcome : {&sent, &received}) {
      REQUIRE(outcome->result);
      CHECK(outcome->words().contains(fmt::format("sends {} bytes", sent_bytes)));
      CHECK(outcome->words().contains(fmt::format("expects {}", expected)));
    }
  }
}

TEST_CASE("nothing of an epoch is seen in another") {
  Stage stage(2);
  const std::string old("old!");
  const std::string fresh("new!");
  std::string got("    ");
  const auto& sent = stage.start(stage[0].send(1, kTag, as_bytes(old)));
  stage.sim.run_for(1ms);
  stage[1].begin_epoch(2);
  const auto& received = stage.start(stage[1].receive(0, kTag, as_mutable_bytes(got)));
  stage.sim.run_for(1s);
  CHECK_FALSE(received.result);
  CHECK_FALSE(sent.result);
  stage[0].end_epoch({Code::unavailable, "a rank died"});
  stage.sim.run_for(1ms);
  CHECK(sent.words().contains("a rank died"));
  const auto& late = stage.start(stage[0].send(1, kTag, as_bytes(old)));
  stage.sim.run_for(1ms);
  CHECK(late.words().contains("a rank died"));
  stage[0].begin_epoch(2);
  const auto& again = stage.start(stage[0].send(1, kTag, as_bytes(fresh)));
  stage.sim.run_for(1ms);
  CHECK(again.good());
  CHECK(received.good());
  CHECK(got == fresh);
}

TEST_CASE("a scope that is refused is refused at both ends, and other scopes go on") {
  Stage stage(3);
  std::string room("    ");
  std::string other_room("    ");
  const std::string text("text");
  const auto& waiting = stage.start(stage[1].receive(0, kTag, as_mutable_bytes(room)));
  const auto& other = stage.start(stage[1].receive(0, {8, 1}, as_mutable_bytes(other_room)));
  stage.scope.spawn(stage[0].refuse(
      {1, 2}, {.from = {.scope = 7}, .why = {Code::invalid, "ranks do not call the same"}}));
  stage.sim.run_for(1ms);
  CHECK(waiting.words().contains("do not call the same"));
  CHECK(waiting.at_ns == 1'000);
  const auto& later = stage.start(stage[2].send(1, kTag, as_bytes(text)));
  const auto& fine = stage.start(stage[0].send(1, {8, 1}, as_bytes(text)));
  stage.sim.run_for(1ms);
  CHECK(later.words().contains("do not call the same"));
  CHECK(fine.good());
  CHECK(other.good());
  for (uint32_t rank = 0; rank < 3; ++rank) stage[rank].begin_epoch(2);
  const auto& next = stage.start(stage[2].send(1, kTag, as_bytes(text)));
  const auto& got = stage.start(stage[1].receive(2, kTag, as_mutable_bytes(room)));
  stage.sim.run_for(1ms);
  CHECK(next.good());
  CHECK(got.good());
}

TEST_CASE("puts and gets reach the heap of another rank, where they may, in its epoch") {
  Stage stage(2);
  const std::string text(5'000, 'p');
  std::string back(5'000, ' ');
  const uint64_t upper = Stage::kHeap / 2;
  const auto& put = stage.start(stage[0].put(1, upper + 3, as_bytes(text)));
  stage.sim.run_for(1ms);
  CHECK(put.good());
  CHECK(put.at_ns == 7'000);
  const auto& got = stage.start(stage[0].get(1, upper + 3, as_mutable_bytes(back)));
  const auto& low = stage.start(stage[0].put(1, 0, as_bytes(text)));
  const auto& outside = stage.start(stage[0].get(1, Stage::kHeap - 1, as_mutable_bytes(back)));
  stage.sim.run_for(1ms);
  CHECK(got.good());
  CHECK(back == text);
  CHECK((low.result && low.result->error().code() == Code::denied));
  CHECK((outside.result && outside.result->error().code() == Code::invalid));
  stage[0].begin_epoch(2);
  const auto& early = stage.start(stage[0].put(1, upper, as_bytes(text)));
  stage.sim.run_for(50ms);
  CHECK_FALSE(early.result);
  stage[1].begin_epoch(2);
  stage.sim.run_for(50ms);
  CHECK(early.good());
}

TEST_CASE("who gives up leaves nothing behind, and the message may be received by another") {
  Stage stage(2);
  const std::string text(100'000, 'x');
  std::string room(text.size(), ' ');
  const auto& sent = stage.start(stage[0].send(1, kTag, as_bytes(text)));
  {
    Scope giving_up{Scope::Root{}};
    giving_up.spawn(stage[1].receive(0, kTag, as_mutable_bytes(room)));
    stage.sim.run_for(50us);
    CHECK(stage.hub.net().flows() == 1);
    giving_up.kill();
  }
  CHECK(stage.hub.net().flows() == 0);
  CHECK_FALSE(sent.result);
  const auto& received = stage.start(stage[1].receive(0, kTag, as_mutable_bytes(room)));
  stage.sim.run_for(1ms);
  CHECK(sent.good());
  CHECK(received.good());
  CHECK(room == text);
}

TEST_CASE("what is urgent overtakes, and a cut path delays until it is mended") {
  Stage stage(2);
  const std::string bulk(100'000, 'b');
  const std::string urgent(10'000, 'u');
  std::string bulk_room(bulk.size(), ' ');
  std::string urgent_room(urgent.size(), ' ');
  const auto& slow = stage.start(stage[1].receive(0, {7, 1}, as_mutable_bytes(bulk_room)));
  const auto& fast = stage.start(stage[1].receive(0, {7, 2}, as_mutable_bytes(urgent_room)));
  stage.start(stage[0].send(1, {7, 1}, as_bytes(bulk), Priority::bulk));
  stage.sim.run_for(20us);
  stage.start(stage[0].send(1, {7, 2}, as_bytes(urgent), Priority::urgent));
  stage.sim.run_for(1ms);
  CHECK(fast.at_ns == 20'000 + 10'000 + 1'000);
  CHECK(slow.at_ns == 1'000 + 110'000 + 1'000);
  const uint64_t number = stage.sim.links().partition(HostSet::one(0), HostSet::one(1));
  const auto& sent = stage.start(stage[0].send(1, kTag, as_bytes(urgent)));
  const auto& received = stage.start(stage[1].receive(0, kTag, as_mutable_bytes(urgent_room)));
  stage.sim.run_for(5s);
  CHECK_FALSE(sent.result);
  CHECK_FALSE(received.result);
  stage.sim.links().heal(number);
  stage.sim.run_for(3s);
  CHECK(sent.good());
  CHECK(received.good());
}

}  // namespace
}  // namespace tutti
