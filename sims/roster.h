// A cluster in simulation whose members know each other: host 0 is the head, host n is node n.
#pragma once

#include <memory>

#include "cluster/tree_node.h"
#include "wire/seals.h"
#include "world/sim/simulator.h"

namespace tutti::sims {

class Roster {
 public:
  explicit Roster(uint32_t hosts, uint32_t fan_out = kUsualFanOut)
      : hosts_(hosts), shape_{fan_out} {}

  uint32_t hosts() const { return hosts_; }
  const TreeShape& shape() const { return shape_; }
  Address address(NodeId node) const;
  TreeOptions options(NodeId node) const;
  std::unique_ptr<wire::Seals> seals(SimHost& host) const;

 private:
  uint32_t hosts_;
  TreeShape shape_;
};

}  // namespace tutti::sims
