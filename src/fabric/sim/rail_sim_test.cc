#include <doctest/doctest.h>

#include <cstring>

#include "fabric/fold.h"
#include "fabric/node_folds.h"
#include "fabric/rail.h"
#include "fabric/sim/sim_transport.h"
#include "world/scope.h"

namespace tutti {
namespace {

float value_at(uint32_t lane, uint64_t i) {
  return static_cast<float>(static_cast<int>((lane * 131 + i * 7) % 1000)) * 0.37F - 100;
}

// Hosts of one rank each, one strand each, in one simulation.
using Body = Task<Result<void>> (*)(Rail rail, std::vector<float>& data, RailWay way);

Task<void> keep(Task<Result<void>> work, int& done) {
  auto result = co_await std::move(work);
  CHECK_MESSAGE(result.has_value(), result.error().text());
  ++done;
}

Task<Result<void>> run_all(SimHub& hub, std::vector<std::vector<float>>& data, RailWay way,
                           Body body) {
  const uint32_t hosts = hub.ranks();
  std::vector<std::unique_ptr<SimTransport>> transports;
  int done = 0;
  {
    Scope scope;
    for (uint32_t host = 0; host < hosts; ++host) {
      transports.push_back(std::make_unique<SimTransport>(hub, SimTransportOptions{.rank = host}));
      transports.back()->begin_epoch(1);
      Rail rail{.transport = transports.back().get(), .own = host, .scope = 77, .call = 5};
      for (uint32_t other = 0; other < hosts; ++other) rail.ranks.push_back(other);
      scope.spawn(keep(body(std::move(rail), data[host], way), done));
    }
    (void)co_await scope.join();
  }
  CHECK(done == static_cast<int>(hosts));
  for (uint32_t host = 0; host < hosts; ++host) CHECK(hub.mailbox(host).sends.empty());
  co_return Result<void>{};
}

void on_rail(uint32_t hosts, std::vector<std::vector<float>>& data, RailWay way, Body body) {
  Simulator sim({.seed = hosts, .hosts = hosts});
  std::vector<uint32_t> places(hosts);
  for (uint32_t host = 0; host < hosts; ++host) places[host] = host;
  SimHub hub(sim, NetModel(), std::move(places));
  const auto ran = sim.run(run_all(hub, data, way, body), 10min);
  REQUIRE(ran.has_value());
}

std::vector<std::vector<LaneRange>> one_lane_each(uint32_t hosts) {
  std::vector<std::vector<LaneRange>> nodes(hosts);
  for (uint32_t host = 0; host < hosts; ++host) nodes[host] = {{host, 1}};
  return nodes;
}

Task<Result<void>> reduce(Rail rail, std::vector<float>& data, RailWay way) {
  auto* bytes = reinterpret_cast<std::byte*>(data.data());
  RailReduction work{.op = ReduceOp::mean,
                     .lanes = rail.size(),
                     .nodes = one_lane_each(rail.size()),
                     .sources = {bytes},
                     .target = bytes,
                     .elements = data.size(),
                     .way = way};
  auto done = co_await rail_all_reduce(std::move(rail), std::move(work));
  co_return done;
}

TEST_CASE("hosts reduce in the order of the tree, whichever way they do it") {
  for (const uint32_t hosts : {1U, 2U, 3U, 4U, 5U, 8U, 13U}) {
    for (const uint64_t elements : {1UL, 5UL, 1000UL, 700'001UL}) {
      if (hosts > 5 && elements > 1000) continue;
      std::vector<float> expected(elements);
      std::vector<std::vector<float>> inputs(hosts, std::vector<float>(elements));
      std::vector<const std::byte*> sources;
      for (uint32_t host = 0; host < hosts; ++host) {
        for (uint64_t i = 0; i < elements; ++i) inputs[host][i] = value_at(host, i);
        sources.push_back(reinterpret_cast<const std::byte*>(inputs[host].data()));
      }
      std::byte* targets[] = {reinterpret_cast<std::byte*>(expected.data())};
      fold(FoldTree::plain(hosts), {.op = ReduceOp::mean,
                                    .divisor = hosts,
                                    .sources = sources,
                                    .targets = targets,
                                    .elements = elements});
      for (const RailWay way : {RailWay::direct, RailWay::halving, RailWay::tree}) {
        if (!rail_way_fits(way, hosts, one_lane_each(hosts))) {
          CHECK((way == RailWay::halving && !std::has_single_bit(hosts)));
          continue;
        }
        CAPTURE(hosts);
        CAPTURE(elements);
        CAPTURE(rail_way_name(way));
        auto data = inputs;
        on_rail(hosts, data, way, reduce);
        for (const auto& each : data)
          CHECK(std::memcmp(each.data(), expected.data(), elements * 4) == 0);
      }
    }
  }
}

TEST_CASE("a way fits when hosts hold nodes of one size") {
  using Nodes = std::vector<std::vector<LaneRange>>;
  CHECK(rail_way_fits(RailWay::tree, 5, Nodes{{{0, 2}}, {{2, 2}}, {{4, 1}}}));
  CHECK_FALSE(rail_way_fits(RailWay::halving, 5, Nodes{{{0, 2}}, {{2, 2}}, {{4, 1}}}));
  CHECK(rail_way_fits(RailWay::halving, 4, Nodes{{{0, 2}}, {{2, 2}}}));
  CHECK_FALSE(rail_way_fits(RailWay::tree, 6, Nodes{{{0, 2}, {2, 1}}, {{3, 1}, {4, 2}}}));
  CHECK_FALSE(rail_way_fits(RailWay::tree, 8, Nodes{{{0, 2}}, {{2, 2}}}));
  CHECK_FALSE(rail_way_fits(RailWay::tree, 4, Nodes{{{2, 2}}, {{0, 2}}}));
  CHECK_FALSE(rail_way_fits(RailWay::ring, 4, Nodes{{{0, 2}}, {{2, 2}}}));
}

Task<Result<void>> gather(Rail rail, std::vector<float>& data, RailWay way) {
  std::vector<MutableBytes> pieces;
  const uint64_t each = data.size() / rail.size();
  for (uint32_t host = 0; host < rail.size(); ++host)
    pieces.push_back(std::as_writable_bytes(std::span(data).subspan(host * each, each)));
  auto done = co_await rail_all_gather(std::move(rail), std::move(pieces), way);
  co_return done;
}

Task<Result<void>> broadcast(Rail rail, std::vector<float>& data, RailWay way) {
  const uint32_t root = rail.size() / 2;
  const MutableBytes bytes = std::as_writable_bytes(std::span(data));
  auto done = co_await rail_broadcast(std::move(rail), root, bytes, way);
  co_return done;
}

TEST_CASE("hosts gather and broadcast, directly, by tree and round a ring") {
  for (const uint32_t hosts : {1U, 2U, 3U, 7U, 8U}) {
    for (const uint64_t each : {0UL, 1UL, 300'001UL}) {
      const uint64_t elements = each * hosts;
      std::vector<float> whole(elements);
      for (uint64_t i = 0; i < elements; ++i) whole[i] = value_at(3, i);
      for (const RailWay way : {RailWay::direct, RailWay::ring}) {
        std::vector<std::vector<float>> data(hosts, std::vector<float>(elements, -1));
        for (uint32_t host = 0; host < hosts; ++host)
          std::copy_n(whole.begin() + static_cast<int64_t>(host * each), each,
                      data[host].begin() + static_cast<int64_t>(host * each));
        on_rail(hosts, data, way, gather);
        for (const auto& got : data) CHECK(got == whole);
      }
      for (const RailWay way : {RailWay::tree, RailWay::ring}) {
        std::vector<std::vector<float>> data(hosts, std::vector<float>(elements, -1));
        data[hosts / 2] = whole;
        on_rail(hosts, data, way, broadcast);
        for (const auto& got : data) CHECK(got == whole);
      }
    }
  }
}

TEST_CASE("what a host has becomes the fewest nodes") {
  const auto nodes_of = [](uint32_t lanes, std::vector<LaneRange> sources) {
    std::vector<LaneRange> nodes;
    const auto folds = fold_into_nodes(lanes, sources);
    REQUIRE(folds.has_value());
    for (const NodeFold& fold : *folds) nodes.push_back(fold.node);
    return nodes;
  };
  CHECK(nodes_of(8, {{1, 1}, {0, 1}, {2, 2}}) == std::vector<LaneRange>{{0, 4}});
  CHECK(nodes_of(6, {{3, 1}, {4, 1}, {5, 1}}) == std::vector<LaneRange>{{3, 1}, {4, 2}});
  CHECK(nodes_of(6, {{0, 1}, {2, 1}, {4, 1}}) == std::vector<LaneRange>{{0, 1}, {2, 1}, {4, 1}});
  CHECK(nodes_of(7, {{4, 1}, {5, 1}, {6, 1}}) == std::vector<LaneRange>{{4, 3}});
  const LaneRange twice[] = {{0, 2}, {1, 1}};
  CHECK_FALSE(fold_into_nodes(8, twice).has_value());
  const LaneRange no_node[] = {{1, 2}};
  CHECK_FALSE(fold_into_nodes(8, no_node).has_value());
}

}  // namespace
}  // namespace tutti
