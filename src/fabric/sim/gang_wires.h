// What carries the bytes of a simulated gang between its hosts: a modelled network, or the tcp
// transport over the simulated one.
#pragma once

#include <memory>
#include <vector>

#include "fabric/memory_book.h"
#include "fabric/sim/sim_hub.h"
#include "fabric/wiring.h"

namespace tutti {

// One rank's, in one life.
class GangWire : public Wiring {
 public:
  // Before the process ends by itself; not when it is killed.
  virtual Task<void> close() = 0;
};

class GangWires {
 public:
  virtual ~GangWires() = default;
  // On which host each rank is.
  virtual const std::vector<uint32_t>& nodes() const = 0;
  virtual Task<Result<std::unique_ptr<GangWire>>> open(World& world, uint32_t rank,
                                                       MutableBytes heap) = 0;
};

// SimTransport.
class FlowWires final : public GangWires {
 public:
  FlowWires(Simulator& sim, NetModel model, std::vector<uint32_t> nodes)
      : nodes_(nodes), hub_(sim, std::move(model), std::move(nodes)) {}
  SimHub& hub() { return hub_; }
  const std::vector<uint32_t>& nodes() const override { return nodes_; }
  Task<Result<std::unique_ptr<GangWire>>> open(World& world, uint32_t rank,
                                               MutableBytes heap) override;

 private:
  std::vector<uint32_t> nodes_;
  SimHub hub_;
};

// TcpTransport, of which connections break and bytes are damaged once in so many writes.
struct TcpWiresOptions {
  uint64_t seed = 1;
  uint64_t shaken_one_in = 0;  // 0: never
  uint32_t streams = 1;
  bool checksums = true;
  bool encrypt = false;
};

class TcpWires final : public GangWires {
 public:
  TcpWires(std::vector<uint32_t> nodes, TcpWiresOptions options);
  const std::vector<uint32_t>& nodes() const override { return nodes_; }
  Task<Result<std::unique_ptr<GangWire>>> open(World& world, uint32_t rank,
                                               MutableBytes heap) override;
  // Of all that were closed.
  const TcpCounters& counters() const { return counters_; }

 private:
  class Wire;
  std::vector<uint32_t> nodes_;
  TcpWiresOptions options_;
  MemoryBook book_;
  TcpCounters counters_;
  uint64_t opened_ = 0;
};

}  // namespace tutti
