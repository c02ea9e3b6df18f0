// The wiring of ranks that agents started: the agent says who is where, TCP or UCX carries the
// rest, and ranks find each other's ports through the exchange.
#pragma once

#include <memory>

#include "cluster/client/rank_exchange.h"
#include "fabric/tcp_transport.h"
#include "fabric/wiring.h"
#include "world/real/ucx/ucx_carrier.h"

namespace tutti {

struct ClusterWiringOptions {
  RankIdentity identity;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  MutableBytes heap{};  // of the host
  // Of this rank's part of it, what others may write.
  uint64_t put_begin = 0;
  uint64_t put_end = 0;
  std::string transport = "tcp";  // or "ucx"; the same for all ranks
  uint32_t streams = 1;
  bool checksums = true;
  bool encrypt = false;
  Duration timeout = 10min;  // of the agent's answers
};

class ClusterWiring final : public Wiring, private AddressBook {
 public:
  // Of the engine's world, and used there alone.
  ClusterWiring(RealWorld& world, ClusterWiringOptions options)
      : world_(world), options_(std::move(options)), exchange_(world, options_.identity) {}

  Task<Result<std::vector<uint32_t>>> begin_epoch(uint64_t epoch) override;
  Transport& transport() override { return *transport_; }
  // Before the engine ends.
  Task<void> stop();

 private:
  Task<Result<void>> open(const GangTable& table);
  Task<Result<void>> publish(uint64_t epoch, Address address) override;
  Task<Result<Address>> find(uint64_t epoch, uint32_t rank) override;
  Instant deadline() const { return world_.clock().now() + options_.timeout; }

  RealWorld& world_;
  ClusterWiringOptions options_;
  RankExchange exchange_;
  std::unique_ptr<UcxCarrier> carrier_;  // if any
  std::unique_ptr<TcpTransport> transport_;
};

}  // namespace tutti
