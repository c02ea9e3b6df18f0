#include "world/sim/director.h"

#include <cmath>

#include "world/sim/disk.h"

namespace tutti {

namespace {

constexpr double kDiskErrorProbability = 0.3;
constexpr double kLossProbability = 0.3;
constexpr Duration kSlowLinkLatency = 20ms;
constexpr uint64_t kSlowestPercent = 2000;

Duration exponential(SimRandom& random, Duration mean) {
  return Duration(
      static_cast<int64_t>(-std::log(1 - random.unit()) * static_cast<double>(to_ns(mean))));
}

// A random half of the hosts, drawn anew each time.
HostSet some_hosts(SimRandom& random, uint32_t hosts) {
  std::vector<uint32_t> chosen;
  for (uint32_t host = 0; host < hosts; ++host)
    if (random.below(2) == 0) chosen.push_back(host);
  return HostSet::of(std::move(chosen));
}

// What ends a fault that was begun.
struct Begun {
  uint32_t host = 0;
  uint64_t link = 0;
};

Begun begin_link(Simulator& sim, FaultKind kind, SimRandom& random) {
  const HostSet from = some_hosts(random, sim.hosts());
  const HostSet to = some_hosts(random, sim.hosts());
  if (kind == FaultKind::partition) return {.link = sim.links().partition(from, to)};
  LinkFault fault;
  if (kind == FaultKind::one_way) fault.cut = true;
  if (kind == FaultKind::slow_link) fault.extra_latency = kSlowLinkLatency;
  if (kind == FaultKind::loss) fault.loss = kLossProbability;
  return {.link = sim.links().add(from, to, fault)};
}

Begun begin(Simulator& sim, FaultKind kind, SimRandom& random) {
  const auto host = static_cast<uint32_t>(random.below(sim.hosts()));
  switch (kind) {
    case FaultKind::crash: sim.crash(host); break;
    case FaultKind::pause: sim.pause(host); break;
    case FaultKind::slow:
      sim.set_slow(host, 100 + static_cast<uint32_t>(random.below(kSlowestPercent)));
      break;
    case FaultKind::disk_error:
      sim.host(host).sim_disk().set_error_probability(kDiskErrorProbability);
      break;
    case FaultKind::disk_full: sim.host(host).sim_disk().set_full(true); break;
    default: return begin_link(sim, kind, random);
  }
  return {.host = host};
}

void end(Simulator& sim, FaultKind kind, const Begun& begun) {
  switch (kind) {
    case FaultKind::crash: return sim.reboot(begun.host);
    case FaultKind::pause: return sim.resume(begun.host);
    case FaultKind::slow: return sim.set_slow(begun.host, 100);
    case FaultKind::disk_error: return sim.host(begun.host).sim_disk().set_error_probability(0);
    case FaultKind::disk_full: return sim.host(begun.host).sim_disk().set_full(false);
    default: return sim.links().heal(begun.link);
  }
}

Task<Result<void>> direct(Simulator& sim, FaultKind kind, FaultPlan::Rate rate) {
  SimRandom random(sim.key(static_cast<uint32_t>(kind), RandomStream::director));
  for (;;) {
    const Duration quiet = exponential(random, rate.every);
    CO_TRY_DO(co_await sim.clock().sleep(quiet));
    const Begun begun = begin(sim, kind, random);
    sim.note(kDirector, fmt::format("{} begins", fault_kind_name(kind)));
    const Duration length = exponential(random, rate.lasts);
    auto slept = co_await sim.clock().sleep(length);
    end(sim, kind, begun);
    sim.note(kDirector, fmt::format("{} ends", fault_kind_name(kind)));
    if (!slept) co_return slept;
  }
}

}  // namespace

Task<Result<void>> direct_faults(Simulator& simulator, FaultPlan plan) {
  Scope scope;
  for (size_t i = 0; i < kFaultKinds; ++i) {
    if (plan.rates[i].every > 0s)
      scope.spawn(direct(simulator, static_cast<FaultKind>(i), plan.rates[i]));
  }
  auto joined = co_await scope.join();
  co_return joined;
}

}  // namespace tutti
