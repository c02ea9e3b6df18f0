#include "sims/roster.h"

namespace tutti::sims {
namespace {

constexpr uint16_t kTreePort = 7400;
constexpr const char* kCluster = "sim";

wire::Identity identity(NodeId node) {
  return {kCluster, node == kHead ? wire::Role::head : wire::Role::agent, sim_host_name(node)};
}

wire::Claim claim_of(NodeId node) {
  constexpr int64_t kFarFuture_s = 4'000'000'000;
  return {.identity = identity(node),
          .authority = "sim",
          .not_before_unix_s = 0,
          .not_after_unix_s = kFarFuture_s};
}

}  // namespace

Address Roster::address(NodeId node) const { return Address::tcp(sim_host_name(node), kTreePort); }

TreeOptions Roster::options(NodeId node) const {
  TreeOptions options;
  options.shape = shape_;
  options.node = node;
  options.address = address(node).text();
  options.self = identity(node);
  if (node == kHead) return options;
  for (const NodeId place : shape_.places_for(node)) {
    tree::Place& known = options.places.emplace_back();
    known.set_node(place);
    known.set_address(address(place).text());
  }
  return options;
}

std::unique_ptr<wire::Seals> Roster::seals(SimHost& host) const {
  return wire::make_sim_seals(
      host, [&host] { return claim_of(host.index()); },
      [&host] { host.charge(host.simulator().costs().handshake_ns); });
}

}  // namespace tutti::sims
