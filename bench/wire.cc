// Our side of bench_wire.py. A server and a client, one process and one event loop each.
//
//   bench_wire certificates FOLDER              makes FOLDER/server.pem and FOLDER/client.pem
//   bench_wire serve [--tls FOLDER]             prints its port, runs until it is killed
//   bench_wire call PORT BYTES IN_FLIGHT SECONDS [--tls FOLDER]
//   bench_wire send PORT BYTES IN_FLIGHT SECONDS    large requests; prints GB/s
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include "bench/echo.pb.h"
#include "measure.h"
#include "wire/authority.h"
#include "wire/connection.h"
#include "wire/plain_seal.h"
#include "wire/server.h"
#include "wire/tls.h"
#include "world/real/network.h"

namespace tutti::wire {
namespace {

using bench::Packet;
using bench::Usage;

constexpr Method<Packet, Packet> kCall{"bench.call"};
constexpr Method<Packet, Usage> kUsed{"bench.used"};
constexpr Method<Blob, Blob> kSend{"bench.send"};

[[noreturn]] void die(const std::string& why) {
  std::cerr << "bench_wire: " << why << "\n";
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().text());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// The certificate is the one --tls names; without it nothing is sealed.
struct Sealing {
  Clock& clock;
  std::shared_ptr<const TlsContext> context;
  Side side;

  Sealing(Clock& clock, Side side, const char* folder) : clock(clock), side(side) {
    if (folder == nullptr) return;
    const char* name = side == Side::accepting ? "/server.pem" : "/client.pem";
    std::ifstream file(std::string(folder) + name);
    const std::string pem{std::istreambuf_iterator<char>(file), {}};
    context = must(TlsContext::make(must(Certificate::from_pem(pem))));
  }
  Result<std::unique_ptr<Seal>> make() const {
    if (!context) return std::make_unique<PlainSeal>();
    return make_tls_seal(context, clock, {.side = side});
  }
  ConnectionOptions options() const {
    const Role role = side == Side::accepting ? Role::head : Role::user;
    const char* name = side == Side::accepting ? "server" : "client";
    return {.self = {"bench", role, name}, .address = "127.0.0.1"};
  }
};

Task<Result<Packet>> answer_call(CallContext&, Packet& request) { co_return std::move(request); }
Task<Result<Blob>> answer_send(CallContext&, const Blob&) { co_return Blob(); }
Task<Result<Usage>> answer_used(CallContext&, const Packet&) {
  Usage usage;
  usage.set_cpu_ns(cpu_ns());
  co_return usage;
}

Task<Result<void>> serve(Loop& loop, RealNetwork& network, const char* folder) {
  Methods methods;
  methods.add(kCall, answer_call);
  methods.add(kUsed, answer_used);
  methods.add(kSend, answer_send);
  const Sealing sealing(loop.clock(), Side::accepting, folder);
  Server server(loop.clock(), methods, [&] { return sealing.make(); },
                {.connection = sealing.options()});
  const Address anywhere = Address::tcp("127.0.0.1", 0);
  CO_TRY(auto listener, co_await network.listen(anywhere));
  std::cout << listener->address().port << std::endl;
  auto served = co_await server.serve(*listener);
  co_return served;
}

Task<Result<uint64_t>> server_cpu_ns(Connection& connection) {
  const Packet nothing;
  auto usage = co_await connection.call(kUsed, nothing);
  if (!usage) co_return fail(usage.error());
  co_return usage->cpu_ns();
}

struct Load {
  size_t bytes = 64;
  size_t in_flight = 1;
  double seconds = 1;
};

Task<Result<void>> call_until(Connection& connection, Load load, uint64_t until_ns,
                              Measurement* measurement) {
  Packet request;
  request.set_payload(std::string(load.bytes, 'x'));
  uint64_t before = now_ns();
  while (before < until_ns) {
    auto reply = co_await connection.call(kCall, request);
    if (!reply) co_return fail(reply.error());
    if (reply->payload().size() != load.bytes) co_return fail(Code::corrupt, "a short echo");
    const uint64_t after = now_ns();
    if (measurement != nullptr) measurement->add(after - before);
    before = after;
  }
  co_return Result<void>();
}

Task<Result<void>> run_calls(Connection& connection, Load load, double seconds,
                             Measurement* measurement) {
  const uint64_t until = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  Scope scope;
  for (size_t i = 0; i < load.in_flight; ++i)
    scope.spawn(call_until(connection, load, until, measurement));
  auto joined = co_await scope.join();
  co_return joined;
}

Task<Result<void>> measure_calls(Connection& connection, Load load) {
  Measurement measurement;
  CO_TRY_DO(co_await run_calls(connection, load, kWarmUpSeconds, nullptr));
  CO_TRY(const uint64_t before, co_await server_cpu_ns(connection));
  measurement.begin(before);
  CO_TRY_DO(co_await run_calls(connection, load, load.seconds, &measurement));
  measurement.end();
  CO_TRY(const uint64_t after, co_await server_cpu_ns(connection));
  measurement.print(after);
  co_return Result<void>();
}

Task<Result<void>> send_until(Connection& connection, Blob message, uint64_t until_ns,
                              uint64_t& sent) {
  while (now_ns() < until_ns) {
    auto reply = co_await connection.call(kSend, message);
    if (!reply) co_return fail(reply.error());
    sent += message.size();
  }
  co_return Result<void>();
}

Task<Result<void>> measure_sends(Connection& connection, Load load) {
  for (const double seconds : {kWarmUpSeconds, load.seconds}) {
    const uint64_t start = now_ns();
    const uint64_t until = start + static_cast<uint64_t>(seconds * 1e9);
    uint64_t sent = 0;
    Scope scope;
    for (size_t i = 0; i < load.in_flight; ++i) {
      // Each sender has its own buffer, as the raw peer does.
      const Blob message = Blob::copy_of(as_bytes(std::string(load.bytes, 'x')));
      scope.spawn(send_until(connection, message, until, sent));
    }
    CO_TRY_DO(co_await scope.join());
    if (seconds == load.seconds)
      std::printf("%.4f\n", static_cast<double>(sent) / static_cast<double>(now_ns() - start));
  }
  co_return Result<void>();
}

using Work = Task<Result<void>> (*)(Connection&, Load);

Task<Result<void>> with_connection(Loop& loop, RealNetwork& network, uint16_t port, Load load,
                                   const char* folder, Work work) {
  const Sealing sealing(loop.clock(), Side::connecting, folder);
  const Address address = Address::tcp("127.0.0.1", port);
  CO_TRY(auto stream, co_await network.connect(address));
  CO_TRY(auto seal, sealing.make());
  CO_TRY(auto connection,
         co_await Connection::greet(loop.clock(), std::move(stream), std::move(seal),
                                    Side::connecting, nullptr, sealing.options()));
  Scope scope;
  scope.spawn(connection->run());
  auto worked = co_await work(*connection, load);
  connection->close(loop.clock().now() + 1s);
  CO_TRY_DO(co_await scope.join());
  co_return worked;
}

int make_certificates(const std::string& folder) {
  const int64_t now_s = std::time(nullptr);
  const Authority authority = must(Authority::create("bench", now_s));
  std::ofstream(folder + "/server.pem")
      << must(authority.issue({.role = Role::head, .name = "server"}, now_s)).pem();
  std::ofstream(folder + "/client.pem")
      << must(authority.issue({.role = Role::user, .name = "client"}, now_s)).pem();
  return 0;
}

int run(std::span<char*> arguments) {
  const char* folder = nullptr;
  if (arguments.size() >= 2 && std::strcmp(arguments[arguments.size() - 2], "--tls") == 0) {
    folder = arguments.back();
    arguments = arguments.first(arguments.size() - 2);
  }
  const std::string verb = arguments.empty() ? "" : arguments[0];
  if (verb == "certificates" && arguments.size() == 2) return make_certificates(arguments[1]);
  Loop loop;
  RealNetwork network(loop);
  if (verb == "serve") {
    must(loop.run(serve(loop, network, folder)));
  } else if ((verb == "call" || verb == "send") && arguments.size() == 5) {
    const auto port = static_cast<uint16_t>(std::atoi(arguments[1]));
    const Load load{static_cast<size_t>(std::atoll(arguments[2])),
                    static_cast<size_t>(std::atoll(arguments[3])), std::atof(arguments[4])};
    const Work work = verb == "call" ? measure_calls : measure_sends;
    must(loop.run(with_connection(loop, network, port, load, folder, work)));
  } else {
    die("certificates FOLDER | serve | call PORT BYTES IN_FLIGHT SECONDS | send …; --tls FOLDER");
  }
  return 0;
}

}  // namespace
}  // namespace tutti::wire

int main(int count, char** arguments) {
  return tutti::wire::run({arguments + 1, static_cast<size_t>(count - 1)});
}
