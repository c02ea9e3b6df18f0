#include "world/sim/flow_net.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <memory>

#include "world/sim/simulator.h"

namespace tutti {
namespace {

// A byte takes a nanosecond out of a host, and half of that between racks of two hosts.
NetModel round_model() {
  NetModel model;
  model.host_bytes_per_s = 1e9;
  model.hosts_per_rack = 2;
  model.rack_bytes_per_s = 2e9;
  return model;
}

struct Counted final : FlowNet::Flow {
  explicit Counted(Simulator& sim) : sim(sim) {}
  void drained() override { ended_ns = sim.now_ns(); }
  Simulator& sim;
  int64_t ended_ns = -1;
};

struct Stage {
  explicit Stage(NetModel model = round_model()) : net(sim.clock(), std::move(model), 8) {}
  Counted& begin(uint32_t from, uint32_t to, uint64_t bytes, uint32_t urgency_class = 1) {
    flows.push_back(std::make_unique<Counted>(sim));
    net.begin(*flows.back(), from, to, bytes, urgency_class);
    return *flows.back();
  }
  Simulator sim{{}};
  FlowNet net;
  std::vector<std::unique_ptr<Counted>> flows;
};

TEST_CASE("a flow that is joined by another has half from then on, and all again after it") {
  Stage stage;
  const Counted& first = stage.begin(0, 1, 10'000);
  stage.sim.run_for(4us);
  const Counted& second = stage.begin(0, 2, 2'000);
  stage.sim.run_for(100us);
  CHECK(second.ended_ns == 4'000 + 4'000);
  CHECK(first.ended_ns == 12'000);
  CHECK(stage.net.flows() == 0);
}

TEST_CASE("who sends to one host shares its card, and an uplink is shared by a rack") {
  Stage stage;
  const Counted& a = stage.begin(0, 1, 3'000);
  const Counted& b = stage.begin(2, 1, 3'000);
  const Counted& c = stage.begin(4, 1, 3'000);
  stage.sim.run_for(1ms);
  CHECK(a.ended_ns == 9'000);
  CHECK(b.ended_ns == 9'000);
  CHECK(c.ended_ns == 9'000);
  NetModel narrow = round_model();
  narrow.rack_bytes_per_s = 0.5e9;
  Stage other(narrow);
  const Counted& up = other.begin(0, 2, 3'000);
  const Counted& too = other.begin(1, 4, 3'000);
  const Counted& within = other.begin(0, 1, 3'000);
  other.sim.run_for(1ms);
  CHECK(up.ended_ns == 12'000);  // a quarter of the card each
  CHECK(too.ended_ns == 12'000);
  CHECK(within.ended_ns == 4'000);
}

TEST_CASE("what is urgent holds the rest up, and a flow that is stopped frees its share") {
  Stage stage;
  const Counted& bulk = stage.begin(0, 1, 5'000, 2);
  const Counted& urgent = stage.begin(0, 2, 2'000, 0);
  Counted& stopped = stage.begin(3, 4, 50'000);
  const Counted& freed = stage.begin(3, 5, 2'000);
  stage.sim.run_for(1us);
  stopped.stop();
  stage.sim.run_for(1ms);
  CHECK(urgent.ended_ns == 2'000);
  CHECK(bulk.ended_ns == 7'000);
  CHECK(freed.ended_ns == 2'500);
  CHECK(stopped.ended_ns == -1);
  CHECK_FALSE(stopped.flowing());
}

TEST_CASE("what begins at one instant is solved once, and at most so often as the model says") {
  Stage stage;
  for (uint32_t i = 0; i < 96; ++i) stage.begin(i % 8, (i + 1) % 8, 1'000);
  stage.sim.run_for(1ms);
  CHECK(stage.net.solves() == 2);  // all began, and all ended
  NetModel coarse = round_model();
  coarse.resolve_ns = 5'000;
  Stage other(coarse);
  for (uint32_t i = 0; i < 100; ++i) other.begin(0, 1, 100 * (i + 1));
  other.sim.run_for(1s);
  CHECK(other.net.solves() < 110);
  for (const auto& flow : other.flows) CHECK(flow->ended_ns > 0);
  // Late by no more than that for each of the ends before it.
  CHECK(other.flows.back()->ended_ns >= 505'000);
  CHECK(other.flows.back()->ended_ns <= 505'000 + 100 * 5'000);
}

TEST_CASE("packets go one behind the other") {
  Stage stage;
  CHECK(stage.net.send_packet(0, 1, 1'000, 0) == 1'000);
  CHECK(stage.net.send_packet(0, 2, 500, 0) == 1'500);
  CHECK(stage.net.send_packet(3, 2, 500, 0) == 2'000);     // behind the one before, at host 2
  CHECK(stage.net.send_packet(0, 1, 500, 10'000) == 500);  // long after
  CHECK(stage.net.send_packet(0, 0, 500, 0) == 0);
}

TEST_CASE("the built-in model is the one in sims/nets, and mistakes in one are told") {
  std::ifstream file("sims/nets/two_tiers.toml");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto model = NetModel::parse(text, "two_tiers.toml");
  REQUIRE_MESSAGE(model, (model ? "" : model.error().text()));
  const NetModel built_in;
  CHECK(model->name == built_in.name);
  CHECK(model->numbers_from == built_in.numbers_from);
  for (const NetModel::Entry& entry : NetModel::entries())
    CHECK_MESSAGE((*model).*entry.value == built_in.*entry.value, std::string(entry.key));
  CHECK_FALSE(NetModel::parse(text + "hosts = 3\n", "x.toml"));
  CHECK_FALSE(NetModel::parse("name = \"x\"\n", "x.toml"));
}

}  // namespace
}  // namespace tutti
