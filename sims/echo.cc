// Clients send numbered messages to servers that send them back, over raw streams, and begin again
// on a new connection whenever one breaks.
//
// What must hold: within a connection a server receives messages in order, each once, and a client
// is answered the same way; what a client was answered, the server has received; once faults are
// healed, every client is answered again.
#include <cstring>
#include <map>
#include <memory>

#include "sims/scenarios.h"

namespace tutti::sims {

namespace {

constexpr uint16_t kPort = 7000;
constexpr Duration kPatience = 5s;  // a silent connection is given up after this
constexpr Duration kPause = 50ms;
constexpr Duration kRecovery = 1min;

struct Message {
  uint64_t connection;
  uint64_t number;
};

// What happened, seen from outside: no crash takes it away.
struct Ledger {
  std::map<uint64_t, uint64_t> received;  // messages by connection
  std::vector<uint64_t> answered;         // by client
  uint64_t connections = 0;
};
using LedgerPtr = std::shared_ptr<Ledger>;

Task<Result<bool>> read_message(Stream& stream, Message& message) {
  const MutableBytes whole = std::as_writable_bytes(std::span(&message, 1));
  for (size_t got = 0; got < whole.size();) {
    const MutableBytes rest = whole.subspan(got);
    CO_TRY(const size_t now, co_await stream.read(rest));
    if (now == 0) co_return false;
    got += now;
  }
  co_return true;
}

Task<void> answer(SimHost& host, LedgerPtr ledger, std::unique_ptr<Stream> stream) {
  Message message{};
  for (uint64_t expected = 0;; ++expected) {
    auto got = co_await read_message(*stream, message);
    if (!got || !*got) co_return;
    host.simulator().check(message.number == expected, "{} received message {} in place of {}",
                           host.host_name(), message.number, expected);
    uint64_t& received = ledger->received[message.connection];
    host.simulator().check(received == expected, "message {} was received twice", expected);
    received = expected + 1;
    const Bytes bytes = std::as_bytes(std::span(&message, 1));
    auto sent = co_await stream->write(bytes);
    if (!sent) co_return;
  }
}

Task<Result<void>> serve(SimHost& host, LedgerPtr ledger) {
  const Address address = Address::tcp("0.0.0.0", kPort);
  CO_TRY(auto listener, co_await host.network().listen(address));
  Scope scope;
  for (;;) {
    auto stream = co_await listener->accept();
    if (!stream) break;
    scope.spawn(answer(host, ledger, std::move(*stream)));
  }
  co_return co_await scope.join();
}

Task<Result<void>> converse(SimHost& host, LedgerPtr ledger, Address server) {
  CO_TRY(auto stream, co_await host.network().connect(server));
  Message message{.connection = ledger->connections++, .number = 0};
  for (;; ++message.number) {
    const Bytes bytes = std::as_bytes(std::span(&message, 1));
    CO_TRY_DO(co_await stream->write(bytes));
    Message reply{};
    const Instant at = host.clock().now() + kPatience;
    auto reading = read_message(*stream, reply);
    CO_TRY(const bool whole, co_await with_deadline(host.clock(), at, std::move(reading)));
    if (!whole) co_return fail(Code::unavailable, "the server closed the connection");
    host.simulator().check(reply.connection == message.connection && reply.number == message.number,
                           "{} was answered {} for {}", host.host_name(), reply.number,
                           message.number);
    host.simulator().check(ledger->received[message.connection] > message.number,
                           "answered, but never received");
    ++ledger->answered[host.index()];
    const Duration pause = kPause + Duration(static_cast<int64_t>(host.random().below(1'000'000)));
    CO_TRY_DO(co_await host.clock().sleep(pause));
  }
}

Task<Result<void>> ask(SimHost& host, LedgerPtr ledger, uint32_t servers) {
  for (;;) {
    const auto server = static_cast<uint32_t>(host.random().below(servers));
    const Address address = Address::tcp(sim_host_name(server), kPort);
    auto ended = co_await converse(host, ledger, address);
    if (ended.error().code() == Code::cancelled) co_return ended;
    if (ended.error().code() == Code::deadline) TUTTI_PROBE("echo: a connection fell silent");
    CO_TRY_DO(co_await host.clock().sleep(kPause));
  }
}

Task<Result<void>> run(Simulator& sim, Duration length) {
  auto ledger = std::make_shared<Ledger>();
  ledger->answered.resize(sim.hosts());
  const uint32_t servers = std::max(1U, sim.hosts() / 2);
  sim.set_program([ledger, servers](SimHost& host) {
    return host.index() < servers ? serve(host, ledger) : ask(host, ledger, servers);
  });
  sim.start_all();
  CO_TRY_DO(co_await suffer(sim, length));
  const std::vector<uint64_t> before = ledger->answered;
  CO_TRY_DO(co_await sim.clock().sleep(kRecovery));
  for (uint32_t client = servers; client < sim.hosts(); ++client)
    sim.check(ledger->answered[client] > before[client],
              "host{} gets no answers though all is well", client);
  co_return {};
}

}  // namespace

const Scenario kEcho = {"echo", "clients and servers over raw streams, with retries", 8, 2, 60s,
                        run};

}  // namespace tutti::sims
