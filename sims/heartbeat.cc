// Hosts in a tree tell their parent once a second that they and those below them live. Light on
// each host, so that it runs with a million of them.
//
// What must hold: the root knows of every host a few beats after all is well.
#include <cstring>
#include <memory>

#include "sims/scenarios.h"

namespace tutti::sims {

namespace {

constexpr uint32_t kFanOut = 32;
constexpr uint16_t kPort = 7001;
constexpr Duration kBeat = 1s;
constexpr Duration kSilence = 5s;    // after this a child counts as gone
constexpr Duration kRecovery = 90s;  // a stream that stalled is given up after 15 s, level by level

uint32_t parent_of(uint32_t host) { return (host - 1) / kFanOut; }
uint32_t depth_of(uint32_t host) { return host == 0 ? 0 : 1 + depth_of(parent_of(host)); }
bool has_children(uint32_t host, uint32_t hosts) { return uint64_t{host} * kFanOut + 1 < hosts; }

// What a host knows of those below it, one entry per child that is connected.
struct Children {
  uint64_t alive = 0;
};

struct Ledger {
  uint64_t known_to_root = 0;
};
using LedgerPtr = std::shared_ptr<Ledger>;

// Fewer only at the end of the stream.
Task<Result<size_t>> read_all(Stream& stream, MutableBytes into) {
  size_t total = 0;
  while (total < into.size()) {
    const MutableBytes rest = into.subspan(total);
    CO_TRY(const size_t got, co_await stream.read(rest));
    if (got == 0) break;
    total += got;
  }
  co_return total;
}

Task<Result<void>> hear(SimHost& host, Stream& stream, Children& children, uint64_t& said) {
  for (;;) {
    uint64_t alive = 0;
    const MutableBytes into = std::as_writable_bytes(std::span(&alive, 1));
    auto reading = read_all(stream, into);
    const Instant at = host.clock().now() + kSilence;
    CO_TRY(const size_t got, co_await with_deadline(host.clock(), at, std::move(reading)));
    if (got != sizeof alive) co_return fail(Code::unavailable, "the child left");
    children.alive += alive - said;
    said = alive;
  }
}

Task<void> hear_child(SimHost& host, std::unique_ptr<Stream> stream, Children& children) {
  uint64_t said = 0;
  auto ended = co_await hear(host, *stream, children, said);
  if (!ended) children.alive -= said;
}

Task<Result<void>> hear_children(SimHost& host, Children& children) {
  const Address address = Address::tcp("0.0.0.0", kPort);
  CO_TRY(auto listener, co_await host.network().listen(address));
  Scope scope;
  for (;;) {
    auto stream = co_await listener->accept();
    if (!stream) break;
    scope.spawn(hear_child(host, std::move(*stream), children));
  }
  co_return co_await scope.join();
}

Task<Result<void>> beat_on(SimHost& host, Stream& stream, const Children* children) {
  for (;;) {
    const uint64_t alive = 1 + (children == nullptr ? 0 : children->alive);
    const Bytes bytes = std::as_bytes(std::span(&alive, 1));
    CO_TRY_DO(co_await stream.write(bytes));
    CO_TRY_DO(co_await host.clock().sleep(kBeat));
  }
}

Task<Result<void>> beat(SimHost& host, const Children* children) {
  // Not all at once: the first beat comes anywhere in the first second.
  const Duration first = Duration(static_cast<int64_t>(host.random().below(1'000'000'000)));
  CO_TRY_DO(co_await host.clock().sleep(first));
  for (;;) {
    const Address address = Address::tcp(sim_host_name(parent_of(host.index())), kPort);
    auto stream = co_await host.network().connect(address);
    if (stream) {
      auto ended = co_await beat_on(host, **stream, children);
      if (ended.error().code() == Code::cancelled) co_return ended;
      TUTTI_PROBE("heartbeat: a child lost its parent");
    }
    CO_TRY_DO(co_await host.clock().sleep(kBeat));
  }
}

Task<Result<void>> tell_ledger(SimHost& host, const Children& children, LedgerPtr ledger) {
  for (;;) {
    ledger->known_to_root = children.alive + 1;
    CO_TRY_DO(co_await host.clock().sleep(kBeat));
  }
}

Task<Result<void>> run_parent(SimHost& host, LedgerPtr ledger) {
  Children children;
  Scope scope;
  scope.spawn(hear_children(host, children));
  scope.spawn(host.index() == 0 ? tell_ledger(host, children, ledger) : beat(host, &children));
  co_return co_await scope.join();
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  auto ledger = std::make_shared<Ledger>();
  sim.set_program([ledger](SimHost& host) {
    const bool leaf = host.index() != 0 && !has_children(host.index(), host.simulator().hosts());
    return leaf ? beat(host, nullptr) : run_parent(host, ledger);
  });
  sim.start_all();
  CO_TRY_DO(co_await suffer(sim, length));
  // Without faults: the first second, and a beat for each level that the news climbs.
  const bool calm = sim.options().faults.name == "none";
  const Duration settling = (depth_of(sim.hosts() - 1) + 3) * kBeat;
  CO_TRY_DO(co_await sim.clock().sleep(calm ? settling : kRecovery));
  sim.check(ledger->known_to_root == sim.hosts(), "the root knows of {} hosts of {}",
            ledger->known_to_root, sim.hosts());
  co_return {};
}

}  // namespace

const Scenario kHeartbeat = {
    "heartbeat", "a tree of hosts that tell their parent they live", 100, 1, 20s, run};

}  // namespace tutti::sims
