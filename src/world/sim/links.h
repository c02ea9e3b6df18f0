// How long bytes take from one host to another, and what is in their way: partitions, one-way
// loss, slow and lossy links.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/units.h"
#include "world/sim/costs.h"

namespace tutti {

// A set of hosts, as sorted ranges.
class HostSet {
 public:
  static HostSet one(uint32_t host) { return range(host, host + 1); }
  static HostSet range(uint32_t first, uint32_t end);
  static HostSet of(std::vector<uint32_t> hosts);
  static HostSet all() { return range(0, ~0U); }
  bool contains(uint32_t host) const;

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

struct LinkFault {
  bool cut = false;  // nothing arrives
  double loss = 0;   // probability that a packet must be sent again
  Duration extra_latency{};
};

class LinkTable {
 public:
  explicit LinkTable(const CostTable& costs) : costs_(costs) {}

  static constexpr uint32_t kHostsPerRack = 32;

  // From every host of one set to every host of the other, until healed. Gives a number for heal.
  uint64_t add(HostSet from, HostSet to, LinkFault fault);
  // Both ways.
  uint64_t partition(const HostSet& a, const HostSet& b);
  void heal(uint64_t number);
  void heal_all() { rules_.clear(); }

  bool clear() const { return rules_.empty(); }
  // What is in the way now; faults on the same path add up.
  LinkFault fault(uint32_t from, uint32_t to) const;
  bool cut(uint32_t from, uint32_t to) const { return !clear() && fault(from, to).cut; }

  // One way, without faults and jitter.
  int64_t latency_ns(uint32_t from, uint32_t to) const {
    if (from == to) return static_cast<int64_t>(costs_.within_host_ns);
    const bool same_rack = from / kHostsPerRack == to / kHostsPerRack;
    return static_cast<int64_t>(same_rack ? costs_.within_rack_ns : costs_.between_racks_ns);
  }

 private:
  struct Rule {
    uint64_t number;
    HostSet from;
    HostSet to;
    LinkFault fault;
  };
  const CostTable& costs_;
  std::vector<Rule> rules_;
  uint64_t next_number_ = 1;
};

}  // namespace tutti
