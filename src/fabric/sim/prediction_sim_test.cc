// What the modelled network says of the ways between hosts, against what can be computed by hand.
//
// a is the latency one way, B the bandwidth of a card, n the hosts, N the bytes. A large message
// costs its sender three latencies (it is asked for, it arrives, its sender hears so) and N / B; a
// step in which everybody sends and receives is over when both are. Processor time is free here.
#include <doctest/doctest.h>

#include <bit>
#include <functional>

#include "fabric/rail.h"
#include "fabric/sim/sim_transport.h"
#include "world/scope.h"

namespace tutti {
namespace {

constexpr double kLatencyNs = 10'000;
constexpr double kBytesPerNs = 2;

NetModel plain_model(uint32_t hosts_per_rack = 1024) {
  NetModel model;
  model.host_bytes_per_s = kBytesPerNs * 1e9;
  model.hosts_per_rack = hosts_per_rack;
  model.rack_bytes_per_s = 1e15;
  model.within_rack_ns = kLatencyNs;
  model.between_racks_ns = kLatencyNs;
  model.jitter_ns = 0;
  return model;
}

using Body = std::function<Task<Result<void>>(Rail rail, std::vector<float>& data)>;

Task<void> keep(Task<Result<void>> work, uint32_t& done) {
  auto result = co_await std::move(work);
  CHECK_MESSAGE(result.has_value(), result.error().text());
  ++done;
}

// All hosts call it at once: when the last is done.
double takes_ns(uint32_t hosts, NetModel model, uint64_t floats, const Body& body) {
  Simulator sim({.hosts = hosts, .costs = CostTable().without_processor_time()});
  std::vector<uint32_t> numbers(hosts);
  for (uint32_t i = 0; i < hosts; ++i) numbers[i] = i;
  SimHub hub(sim, std::move(model), numbers);
  std::vector<std::unique_ptr<SimTransport>> transports;
  std::vector<std::vector<float>> data(hosts, std::vector<float>(floats, 1));
  Scope scope{Scope::Root{}};
  uint32_t done = 0;
  for (uint32_t host = 0; host < hosts; ++host) {
    transports.push_back(std::make_unique<SimTransport>(hub, SimTransportOptions{.rank = host}));
    transports.back()->begin_epoch(1);
    Rail rail{.transport = transports.back().get(), .ranks = numbers, .own = host};
    scope.spawn(keep(body(std::move(rail), data[host]), done));
  }
  int64_t last = 0;
  for (int i = 0; done < hosts && i < 10'000'000; ++i) {
    sim.run_for(1us);
    last = sim.now_ns();
  }
  CHECK(done == hosts);
  scope.kill();
  return static_cast<double>(last);
}

// To the microsecond by which takes_ns() looks.
void check_about(double got, double expected) {
  CAPTURE(got);
  CAPTURE(expected);
  CHECK(got >= expected);
  CHECK(got <= expected + 1'100);
}

Task<Result<void>> reduce(Rail rail, std::vector<float>& data, RailWay way) {
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  std::vector<std::vector<LaneRange>> nodes(rail.size());
  for (uint32_t host = 0; host < rail.size(); ++host) nodes[host] = {{host, 1}};
  RailReduction work{.lanes = rail.size(),
                     .nodes = std::move(nodes),
                     .sources = {bytes},
                     .target = bytes,
                     .elements = data.size(),
                     .way = way};
  auto done = co_await rail_all_reduce(std::move(rail), std::move(work));
  co_return done;
}

Task<Result<void>> gather(Rail rail, std::vector<float>& data, RailWay way) {
  std::vector<MutableBytes> pieces;
  const uint64_t each = data.size() / rail.size();
  for (uint32_t host = 0; host < rail.size(); ++host)
    pieces.push_back(std::as_writable_bytes(std::span(data).subspan(host * each, each)));
  auto done = co_await rail_all_gather(std::move(rail), std::move(pieces), way);
  co_return done;
}

TEST_CASE("all_reduce directly takes two steps of (n-1)/n of the vector") {
  for (const uint32_t hosts : {2U, 4U, 16U}) {
    const uint64_t floats = 1 << 18;
    const double bytes = 4.0 * floats;
    const double took = takes_ns(hosts, plain_model(), floats, [](Rail rail, auto& data) {
      return reduce(std::move(rail), data, RailWay::direct);
    });
    check_about(took, 2 * (3 * kLatencyNs + (hosts - 1) * bytes / hosts / kBytesPerNs));
  }
}

TEST_CASE("all_reduce by halving takes 2 log2 n steps and as many bytes") {
  for (const uint32_t hosts : {2U, 8U, 16U}) {
    const uint64_t floats = 1 << 18;
    const double bytes = 4.0 * floats;
    const double took = takes_ns(hosts, plain_model(), floats, [](Rail rail, auto& data) {
      return reduce(std::move(rail), data, RailWay::halving);
    });
    const double steps = 2.0 * std::bit_width(hosts - 1);
    check_about(took, steps * 3 * kLatencyNs + 2 * (hosts - 1) * bytes / hosts / kBytesPerNs);
  }
}

TEST_CASE("all_gather round a ring takes n - 1 steps of a piece, directly one of all pieces") {
  for (const uint32_t hosts : {2U, 5U, 16U}) {
    const uint64_t piece = 40'000;
    const double bytes = 4.0 * piece;
    const double ring = takes_ns(hosts, plain_model(), piece * hosts, [](Rail rail, auto& data) {
      return gather(std::move(rail), data, RailWay::ring);
    });
    check_about(ring, (hosts - 1) * (3 * kLatencyNs + bytes / kBytesPerNs));
    const double direct = takes_ns(hosts, plain_model(), piece * hosts, [](Rail rail, auto& data) {
      return gather(std::move(rail), data, RailWay::direct);
    });
    check_about(direct, 3 * kLatencyNs + (hosts - 1) * bytes / kBytesPerNs);
  }
}

TEST_CASE("a tree broadcast takes a level after the other, and its root sends to all of its own") {
  // Eight hosts: the root sends to places 4, 2 and 1, 4 to 6 and 5, 6 to 7. The root's card is
  // shared by three, 4's by two, 6's by none.
  const uint64_t floats = 100'000;
  const double bytes = 4.0 * floats;
  const double took = takes_ns(8, plain_model(), floats, [](Rail rail, auto& data) {
    return rail_broadcast(std::move(rail), 0, std::as_writable_bytes(std::span(data)),
                          RailWay::tree);
  });
  // Receivers ask when they begin, so a level waits only for its bytes to be there.
  const double levels = (3 + 2 + 1) * bytes / kBytesPerNs;
  check_about(took, kLatencyNs + levels + 3 * kLatencyNs + kLatencyNs);
}

TEST_CASE("an oversubscribed uplink is what a gather between racks waits for") {
  const uint32_t hosts = 16;
  NetModel model = plain_model(8);
  model.rack_bytes_per_s = 4 * kBytesPerNs * 1e9;  // of eight cards
  const uint64_t piece = 40'000;
  const double bytes = 4.0 * piece;
  const double took = takes_ns(hosts, model, piece * hosts, [](Rail rail, auto& data) {
    return gather(std::move(rail), data, RailWay::direct);
  });
  // 64 pieces cross each uplink; those within the racks are long there when they do.
  check_about(took, 3 * kLatencyNs + 64 * bytes / (4 * kBytesPerNs));
}

TEST_CASE("small messages cost latency and nothing more") {
  const double took = takes_ns(16, plain_model(), 0,
                               [](Rail rail, auto&) { return rail_barrier(std::move(rail)); });
  check_about(took, 4 * 2 * kLatencyNs);
}

}  // namespace
}  // namespace tutti
