#include "fabric/sim/sim_hub.h"

namespace tutti {

namespace {
constexpr int64_t kResendNs = 200'000'000;  // what was lost comes so much later
}

SimHub::SimHub(Simulator& sim, NetModel model, std::vector<uint32_t> host_of_rank)
    : sim_(sim),
      net_(sim.clock(), std::move(model), sim.hosts()),
      host_of_rank_(std::move(host_of_rank)),
      mailboxes_(host_of_rank_.size()),
      transports_(host_of_rank_.size()),
      random_(sim.random(RandomStream::network)) {}

int64_t SimHub::latency_ns(uint32_t from_host, uint32_t to_host) {
  int64_t ns = model().latency_ns(from_host, to_host);
  if (model().jitter_ns >= 1)
    ns += static_cast<int64_t>(random_.below(static_cast<uint64_t>(model().jitter_ns)));
  if (sim_.links().clear()) return ns;
  const LinkFault fault = sim_.links().fault(from_host, to_host);
  ns += to_ns(fault.extra_latency);
  if (fault.loss > 0 && random_.unit() < fault.loss) ns += kResendNs;
  return ns;
}

}  // namespace tutti
