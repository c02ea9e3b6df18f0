// What the simulated transports of a gang have in common: the network between their hosts, and what
// waits there to be received.
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "fabric/transport.h"
#include "world/sim/flow_net.h"
#include "world/sim/simulator.h"

namespace tutti {

class SimTransport;

namespace simnet {
class Send;
class Receive;

// Names a message to a rank.
struct Key {
  uint64_t epoch = 0;
  uint32_t from = 0;
  Tag tag;
  auto operator<=>(const Key&) const = default;
};

// Of one rank: who sends to it and is not received, and who waits. Those of the same key in the
// order in which they came.
struct Mailbox {
  std::multimap<Key, Send*> sends;
  std::multimap<Key, Receive*> receives;
};
}  // namespace simnet

class SimHub {
 public:
  SimHub(Simulator& sim, NetModel model, std::vector<uint32_t> host_of_rank);

  Simulator& simulator() { return sim_; }
  FlowNet& net() { return net_; }
  const NetModel& model() const { return net_.model(); }
  uint32_t ranks() const { return static_cast<uint32_t>(host_of_rank_.size()); }
  uint32_t host_of(uint32_t rank) const { return host_of_rank_[rank]; }
  SimHost& sim_host(uint32_t rank) { return sim_.host(host_of(rank)); }
  simnet::Mailbox& mailbox(uint32_t rank) { return mailboxes_[rank]; }

  // The transport of a rank that lives, or null; the last one made is.
  SimTransport* transport(uint32_t rank) const { return transports_[rank]; }
  void arrive(uint32_t rank, SimTransport& transport) { transports_[rank] = &transport; }
  void depart(uint32_t rank, const SimTransport& transport) {
    if (transports_[rank] == &transport) transports_[rank] = nullptr;
  }

  // By get(), of all ranks together.
  void note_got(uint64_t bytes) { got_bytes_ += bytes; }
  uint64_t got_bytes() const { return got_bytes_; }

  // One way between hosts, now: with jitter, and what faults of the path add.
  int64_t latency_ns(uint32_t from_host, uint32_t to_host);
  bool cut(uint32_t from_host, uint32_t to_host) { return sim_.links().cut(from_host, to_host); }

 private:
  Simulator& sim_;
  FlowNet net_;
  std::vector<uint32_t> host_of_rank_;
  std::vector<simnet::Mailbox> mailboxes_;
  std::vector<SimTransport*> transports_;
  SimRandom random_;
  uint64_t got_bytes_ = 0;
};

}  // namespace tutti
