// Clients call servers over the RPC while the network is cut (wire-partition), servers lose power
// in the middle of large messages (wire-reset), or nobody reads a stream as fast as it is sent
// (wire-slow-reader); besides whatever the fault plan brings.
//
// What must hold: every call of a client that stays up ends exactly once, with its own reply or an
// error; a handler runs at most once per call, and before any reply; what a connection holds in
// memory stays within its limits; messages of a stream come in order; once all is healed, every
// client is answered again.
#include <algorithm>
#include <memory>
#include <vector>

#include "sims/scenarios.h"
#include "wire/client.h"
#include "wire/seals.h"
#include "wire/server.h"

namespace tutti::sims {

namespace {

using namespace tutti::wire;

constexpr uint16_t kPort = 7000;
constexpr uint32_t kCallers = 4;  // strands of each client
constexpr Duration kLongestCall = 10s;
constexpr Duration kRecovery = 1min;
constexpr size_t kStreamMessage = 1024;
// Quicker to give up on a silent peer than the simulated TCP is.
constexpr Limits kLimits = {.keepalive_interval = 2s, .keepalive_timeout = 4s};

constexpr Method<Blob, Blob> kCount{"sim.count"};
constexpr StreamMethod<Blob, Blob> kFlood{"sim.flood"};

enum class Kind : unsigned char { partition, slow_reader, reset };

struct CallRecord {
  uint32_t host = 0;
  uint32_t boot = 0;  // of the host
  uint32_t started = 0;
  uint32_t ended = 0;
};

// What happened, seen from outside: no crash takes it away.
struct Ledger {
  Kind kind = Kind::partition;
  bool calm = false;  // all is healed: it is enough to see that calls are answered
  uint32_t servers = 1;
  std::vector<CallRecord> calls;
  std::vector<uint64_t> answered;     // by client
  std::vector<uint64_t> stream_sent;  // messages, by stream
};
using LedgerPtr = std::shared_ptr<Ledger>;

Claim claim_of(SimHost& host, Role role) {
  return {{"sim", role, host.host_name()}, "simulated", 0, 4'102'444'800};
}

void check_memory(SimHost& host, Connection& connection) {
  const Limits& limits = connection.limits();
  host.simulator().check(connection.queued_bytes() <= limits.max_queued + limits.max_queued_control,
                         "{} bytes are queued", connection.queued_bytes());
  host.simulator().check(connection.budget_in_use() <= limits.receive_budget,
                         "{} bytes of large messages", connection.budget_in_use());
}

// The number at the beginning of a message.
uint64_t number_of(const Blob& blob) { return load_le<uint64_t>(blob.bytes().data()); }
Blob numbered(uint64_t number, size_t bytes) {
  Blob blob = Blob::uninitialised(std::max(bytes, sizeof number));
  const MutableBytes all = blob.writable();
  std::fill(all.begin(), all.end(), static_cast<std::byte>(number));
  store_le(all.data(), number);
  return blob;
}

struct Service {
  SimHost& host;
  LedgerPtr ledger;

  Task<Result<Blob>> count(CallContext& call, const Blob& request) {
    CallRecord& record = ledger->calls[number_of(request)];
    ++record.started;
    host.simulator().check(record.started == 1, "the handler of one call ran twice");
    check_memory(host, call.connection);
    const Duration work(static_cast<int64_t>(host.random().below(50'000'000)));
    CO_TRY_DO(co_await host.clock().sleep(work));
    co_return request;
  }
  Task<Result<void>> flood(CallContext& call, ServerStream<Blob, Blob>& stream) {
    CO_TRY(auto first, co_await stream.recv());
    if (!first) co_return fail(Code::invalid, "which stream?");
    const uint64_t id = number_of(*first);
    for (uint64_t next = 0;; ++next) {
      const Blob message = numbered(next, kStreamMessage);
      CO_TRY_DO(co_await stream.send(message));
      ++ledger->stream_sent[id];
      check_memory(host, call.connection);
    }
  }
};

Task<Result<void>> serve(SimHost& host, LedgerPtr ledger) {
  Service service{host, ledger};
  Methods methods;
  methods.add(kCount, service, &Service::count);
  methods.add(kFlood, service, &Service::flood);
  const auto seals = make_sim_seals(host, claim_of(host, Role::agent), [] {});
  Server server(
      host.clock(), methods, [&] { return seals->make({.side = Side::accepting}); },
      {.connection = {.self = {"sim", Role::agent, host.host_name()}, .limits = kLimits}});
  const Address address = Address::tcp("0.0.0.0", kPort);
  CO_TRY(auto listener, co_await host.network().listen(address));
  auto served = co_await server.serve(*listener);
  co_return served;
}

// Small ones mostly; where connections break, large ones too, to break in their middle.
size_t draw_size(SimHost& host, Kind kind) {
  const bool large = host.random().chance(kind == Kind::reset ? 0.2 : 0.02);
  return host.random().below(large ? 600'000 : 500);
}

Task<Result<void>> call_once(SimHost& host, LedgerPtr ledger, Client& client) {
  const Duration patience(
      1 + static_cast<int64_t>(host.random().below(static_cast<uint64_t>(to_ns(kLongestCall)))));
  const Instant deadline = host.clock().now() + patience;
  CO_TRY(auto connection, co_await client.connection(deadline));
  const uint64_t id = ledger->calls.size();
  ledger->calls.push_back({host.index(), host.boots()});
  const Blob request = numbered(id, draw_size(host, ledger->kind));
  const CallOptions options{.deadline = deadline};
  auto reply = co_await connection->call(kCount, request, options);
  CallRecord& record = ledger->calls[id];
  ++record.ended;
  host.simulator().check(record.ended == 1, "call {} ended twice", id);
  check_memory(host, *connection);
  if (!reply) co_return fail(reply.error());
  host.simulator().check(record.started == 1, "call {} was answered by nobody", id);
  host.simulator().check(std::ranges::equal(reply->bytes(), request.bytes()),
                         "call {} got the reply of {}", id,
                         reply->size() < 8 ? 0 : number_of(*reply));
  ++ledger->answered[host.index()];
  co_return {};
}

Task<Result<void>> keep_calling(SimHost& host, LedgerPtr ledger, Client& client) {
  for (;;) {
    auto called = co_await call_once(host, ledger, client);
    if (!called && called.error().code() == Code::cancelled) co_return called;
    if (!called && called.error().code() == Code::deadline) TUTTI_PROBE("wire: a call was late");
    const Duration longest = ledger->calm ? 5s : 100ms;
    const Duration pause(
        static_cast<int64_t>(host.random().below(static_cast<uint64_t>(to_ns(longest)))));
    CO_TRY_DO(co_await host.clock().sleep(pause));
  }
}

Task<Result<void>> read_slowly(SimHost& host, LedgerPtr ledger, Client& client) {
  const Instant by = host.clock().now() + kLongestCall;
  CO_TRY(auto connection, co_await client.connection(by));
  CO_TRY(auto stream, co_await connection->open(kFlood));
  const uint64_t id = ledger->stream_sent.size();
  ledger->stream_sent.push_back(0);
  const Blob which = numbered(id, 8);
  CO_TRY_DO(co_await stream.send(which));
  for (uint64_t expected = 0;; ++expected) {
    CO_TRY(auto message, co_await stream.recv());
    if (!message) co_return fail(Code::unavailable, "the flood ended");
    host.simulator().check(number_of(*message) == expected, "stream {}: {} came in place of {}", id,
                           number_of(*message), expected);
    const uint64_t ahead = ledger->stream_sent[id] - expected;
    host.simulator().check(ahead * kStreamMessage <= connection->limits().stream_window + 4096,
                           "the sender is {} messages ahead", ahead);
    const Duration pause(static_cast<int64_t>(host.random().below(200'000'000)));
    CO_TRY_DO(co_await host.clock().sleep(pause));
  }
}

Task<Result<void>> keep_reading(SimHost& host, LedgerPtr ledger, Client& client) {
  for (;;) {
    auto read = co_await read_slowly(host, ledger, client);
    if (read.error().code() == Code::cancelled) co_return read;
    CO_TRY_DO(co_await host.clock().sleep(1s));
  }
}

Task<Result<void>> ask(SimHost& host, LedgerPtr ledger) {
  const auto seals = make_sim_seals(host, claim_of(host, Role::user), [] {});
  const auto index = static_cast<uint32_t>(host.random().below(ledger->servers));
  Client client(host, Address::tcp(sim_host_name(index), kPort),
                [&] { return seals->make({.side = Side::connecting}); }, nullptr,
                {.connection = {.self = {"sim", Role::user, host.host_name()}, .limits = kLimits}});
  Scope scope;
  scope.spawn(client.run());
  for (uint32_t i = 0; i < kCallers; ++i) scope.spawn(keep_calling(host, ledger, client));
  if (ledger->kind == Kind::slow_reader) scope.spawn(keep_reading(host, ledger, client));
  auto joined = co_await scope.join();
  co_return joined;
}

// The faults each scenario is about, besides the plan's.
Task<Result<void>> disturb(Simulator& sim, LedgerPtr ledger) {
  SimRandom random = sim.random(RandomStream::program);
  for (;;) {
    const Duration calm(static_cast<int64_t>(random.below(4'000'000'000)));
    CO_TRY_DO(co_await sim.clock().sleep(calm));
    const auto server = static_cast<uint32_t>(random.below(ledger->servers));
    const Duration lasts(static_cast<int64_t>(random.below(40'000'000'000)));
    if (ledger->kind == Kind::partition) {
      const HostSet clients = HostSet::range(ledger->servers, sim.hosts());
      const uint64_t cut = sim.links().partition(HostSet::one(server), clients);
      CO_TRY_DO(co_await sim.clock().sleep(lasts));
      sim.links().heal(cut);
    } else if (ledger->kind == Kind::reset && sim.host(server).up()) {
      sim.crash(server);
      CO_TRY_DO(co_await sim.clock().sleep(lasts / 20));
      if (!sim.host(server).up()) sim.reboot(server);
    }
  }
}

Task<Result<void>> run(Simulator& sim, Duration length, Kind kind) {
  auto ledger = std::make_shared<Ledger>();
  ledger->kind = kind;
  ledger->servers = std::max(1U, sim.hosts() / 3);
  ledger->answered.resize(sim.hosts());
  sim.set_program([ledger](SimHost& host) {
    return host.index() < ledger->servers ? serve(host, ledger) : ask(host, ledger);
  });
  sim.start_all();
  {
    Scope scope;
    scope.spawn(disturb(sim, ledger));
    auto suffered = co_await suffer(sim, length);
    scope.cancel();
    auto joined = co_await scope.join();
    if (!suffered) co_return suffered;
  }
  sim.heal_all();
  ledger->calm = true;
  const std::vector<uint64_t> before = ledger->answered;
  const size_t begun = ledger->calls.size();
  CO_TRY_DO(co_await sim.clock().sleep(kRecovery));
  for (uint32_t client = ledger->servers; client < sim.hosts(); ++client)
    sim.check(ledger->answered[client] > before[client],
              "host{} gets no answers though all is well", client);
  for (size_t id = 0; id < begun; ++id) {
    const CallRecord& call = ledger->calls[id];
    const bool survived = sim.host(call.host).boots() == call.boot;
    sim.check(!survived || call.ended == 1, "call {} of host{} never ended", id, call.host);
  }
  co_return {};
}

Task<Result<void>> run_partition(Simulator& sim, Duration length) {
  return run(sim, length, Kind::partition);
}
Task<Result<void>> run_slow_reader(Simulator& sim, Duration length) {
  return run(sim, length, Kind::slow_reader);
}
Task<Result<void>> run_reset(Simulator& sim, Duration length) {
  return run(sim, length, Kind::reset);
}

}  // namespace

const Scenario kWirePartition = {"wire-partition", "calls while the network is cut", 6, 2, 60s,
                                 run_partition};
const Scenario kWireSlowReader = {
    "wire-slow-reader", "streams nobody reads as fast as they are sent, beside calls", 6, 2, 60s,
    run_slow_reader};
const Scenario kWireReset = {
    "wire-reset", "large messages broken off by servers that crash", 6, 2, 60s, run_reset};

}  // namespace tutti::sims
