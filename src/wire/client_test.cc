#include "wire/client.h"

#include "wire/memory_world.h"
#include "wire/testing.h"
#include "wire/wire.pb.h"

namespace tutti::wire {
namespace {

const Address kAddress = Address::tcp("memory", 7000);

Result<std::unique_ptr<Seal>> plain_seal() { return std::make_unique<PlainSeal>(); }

// A client, and whatever listens at its address.
struct ClientBench {
  explicit ClientBench(ClientOptions options = {})
      : client(world, kAddress, plain_seal, nullptr, named(std::move(options))) {
    root.spawn(run(*this));
  }
  ~ClientBench() {
    client.close(now() + 1s);
    if (server) server->stop(now() + 1s);
    advance(20s);
    CHECK(ended);
    root.cancel();
    advance(0ms);
    CHECK(root.size() == 0);
  }
  static ClientOptions named(ClientOptions options) {
    options.connection.self = {"c", Role::user, "ann"};
    return options;
  }
  Instant now() { return world.clock().now(); }
  void advance(Duration time) { world.clock().advance(time); }

  static Task<void> run(ClientBench& bench) {
    auto ran = co_await bench.client.run();
    CHECK(ran.has_value());
    bench.ended = bench.now();
  }
  void listen() { world.network().listener = &listener; }
  void serve() {
    listen();
    ServerOptions options{.connection = {.self = {"c", Role::agent, "node7"}}};
    options.joined = [this](Connection& connection) { at_server.push_back(&connection); };
    server.emplace(world.clock(), service.methods, plain_seal, options);
    root.spawn(server->serve(listener));
  }
  // Says these bytes to whoever connects, and never closes.
  static Task<void> recite(ClientBench& bench, std::string bytes) {
    std::vector<std::unique_ptr<Stream>> kept;
    for (;;) {
      auto stream = co_await bench.listener.accept();
      if (!stream) co_return;
      const Bytes part = as_bytes(bytes);
      auto written = co_await (*stream)->write(part);
      static_cast<void>(written);
      kept.push_back(std::move(*stream));
    }
  }

  static Task<void> want(ClientBench& bench, Duration patience) {
    auto connection = co_await bench.client.connection(bench.now() + patience);
    bench.codes.push_back(connection ? std::optional<Code>() : connection.error().code());
    bench.log.push_back(connection ? (*connection)->peer().text() : connection.error().text());
    if (connection) bench.given = *connection;
  }
  void want(Duration patience) { root.spawn(want(*this, patience)); }
  static Task<void> call(ClientBench& bench, Method<Blob, Blob> method, std::string text) {
    auto connection = co_await bench.client.connection(bench.now() + 10s);
    if (!connection) bench.log.push_back(connection.error().text());
    if (!connection) co_return;
    const Blob request = blob_of(text);
    const CallOptions options{.deadline = bench.now() + 1h};
    auto reply = co_await (*connection)->call(method, request, options);
    bench.log.push_back(reply ? text_of(*reply) : reply.error().text());
  }
  void call(Method<Blob, Blob> method, std::string text) {
    root.spawn(call(*this, method, std::move(text)));
  }

  LogLines lines;
  Executor executor;
  MemoryWorld world;
  MemoryListener listener{kAddress};
  TestService service{world.clock()};
  std::optional<Server> server;
  std::vector<Connection*> at_server;  // in the order they came
  std::vector<std::string> log;
  std::vector<std::optional<Code>> codes;
  std::shared_ptr<Connection> given;
  std::optional<Instant> ended;
  Client client;
  Scope root{Scope::Root{}};
};

constexpr std::string_view kMagic = "TUTTI\r\n\x01";

std::string hello() {
  proto::Hello hello;
  hello.set_lowest_version(1);
  hello.set_highest_version(1);
  hello.set_cluster("c");
  hello.set_name("node7");
  hello.set_max_calls(4);
  hello.set_stream_window(kSmallestWindow);
  return frame_bytes(FrameType::hello, std::string(kMagic) + hello.SerializeAsString());
}

TEST_CASE("a client connects when it is first wanted, once for all who want it") {
  ClientBench bench;
  bench.serve();
  bench.advance(10s);
  CHECK(bench.world.network().tries == 0);
  for (int i = 0; i < 5; ++i) bench.call(kEcho, "hi");
  bench.advance(0ms);
  CHECK(bench.log == std::vector<std::string>(5, "hi"));
  CHECK(bench.world.network().tries == 1);
}

TEST_CASE("a peer that is not there is tried again, with longer and longer pauses") {
  ClientBench bench;
  bench.want(1min);
  bench.advance(100ms);
  const int soon = bench.world.network().tries;
  CHECK(soon >= 3);
  bench.advance(30s);
  CHECK(bench.world.network().tries <= soon + 20);
  bench.serve();
  bench.advance(6s);
  CHECK(bench.log == std::vector<std::string>{"agent node7 (memory:7000)"});
}

TEST_CASE("who waits for a peer in vain is told the last reason") {
  ClientBench bench;
  bench.want(3s);
  bench.advance(3s);
  REQUIRE(bench.codes.size() == 1);
  CHECK(bench.codes[0] == Code::deadline);
  CHECK(bench.log[0] == "connecting to memory:7000: still trying: nobody listens at memory:7000");
}

TEST_CASE("a peer that refuses us is not asked again, until somebody wants it again") {
  ClientBench bench;
  bench.listen();
  proto::Reject reject;
  reject.set_code(static_cast<uint32_t>(Code::denied));
  reject.set_reason("not you");
  bench.root.spawn(ClientBench::recite(
      bench, frame_bytes(FrameType::reject, std::string(kMagic) + reject.SerializeAsString())));
  for (int tries : {1, 2}) {
    bench.want(1min);
    bench.advance(30s);
    CHECK(bench.codes.back() == Code::denied);
    CHECK(has(bench.log.back(), "rejected by memory:7000: not you"));
    CHECK(bench.world.network().tries == tries);
  }
}

TEST_CASE("a reject without a sensible code is a refusal, and not the end of the client") {
  for (const std::string& body :
       {std::string(kMagic), std::string(kMagic) + "\x08", std::string("no magic"),
        std::string(kMagic) + std::string("\x08\x00", 2), std::string(kMagic) + "\x08\x7f"}) {
    ClientBench bench;
    bench.listen();
    bench.root.spawn(ClientBench::recite(bench, frame_bytes(FrameType::reject, body)));
    bench.want(1min);
    bench.advance(1s);
    REQUIRE(bench.codes.size() == 1);
    CHECK((bench.codes[0] == Code::denied || bench.codes[0] == Code::corrupt));
    bench.want(1min);
    bench.advance(1s);
    CHECK(bench.codes.size() == 2);
    CHECK(!bench.ended);
  }
}

TEST_CASE("after a goaway the next caller gets a new connection, and the old one finishes") {
  ClientBench bench;
  bench.serve();
  bench.call(kSleep, "1000");
  bench.advance(10ms);
  bench.at_server.at(0)->close(bench.now() + 1min);
  bench.advance(10ms);
  bench.call(kEcho, "new");
  bench.advance(100ms);
  CHECK(bench.log == std::vector<std::string>{"new"});
  CHECK(bench.client.connections() == 2);
  bench.advance(1s);
  CHECK(bench.log == std::vector<std::string>{"new", "1000"});
  CHECK(bench.client.connections() == 1);
}

TEST_CASE("closing a client closes the connections that were replaced too") {
  ClientBench bench;
  bench.serve();
  bench.call(kSleep, "50000");
  bench.advance(10ms);
  bench.at_server.at(0)->close(bench.now() + 1h);
  bench.advance(10ms);
  bench.call(kEcho, "new");
  bench.advance(100ms);
  CHECK(bench.client.connections() == 2);
  const Instant by = bench.now() + 2s;
  bench.client.close(by);
  bench.advance(5s);
  CHECK(bench.ended == by);
  CHECK(has(bench.log.back(), "calling test.sleep"));
}

TEST_CASE("a client that is closed at any moment of connecting has ended in time") {
  for (int rounds = 0; rounds < 40; ++rounds) {
    CAPTURE(rounds);
    ClientBench bench;
    bench.serve();
    bench.want(10s);
    for (int i = 0; i < rounds; ++i) bench.executor.run_round();
    const Instant by = bench.now() + 1s;
    bench.client.close(by);
    bench.advance(2s);
    REQUIRE(bench.ended);
    CHECK(*bench.ended <= by);
    REQUIRE(bench.log.size() == 1);
    const bool connected = !bench.codes[0].has_value();
    if (!connected) CHECK(has(bench.log[0], "the client is closed"));
  }
}

TEST_CASE("closing again with an earlier time hurries it") {
  ClientBench bench;
  bench.serve();
  bench.call(kSleep, "50000");
  bench.advance(10ms);
  bench.client.close(bench.now() + 1h);
  bench.advance(1s);
  CHECK(!bench.ended);
  bench.client.close(bench.now() + 1s);
  bench.advance(1s);
  CHECK(bench.ended);
}

TEST_CASE("a peer that says goaway to every connection is visited less and less, and left") {
  ClientBench bench;
  bench.listen();
  bench.root.spawn(ClientBench::recite(bench, hello() + frame_bytes(FrameType::goaway, "")));
  for (int i = 0; i < 600; ++i) {
    bench.want(90ms);
    bench.advance(100ms);
  }
  CHECK(bench.world.network().tries > 5);
  CHECK(bench.world.network().tries < 40);
  CHECK(bench.client.connections() <= 3);
}

TEST_CASE("connections with calls in flight that were replaced are kept, but not without end") {
  ClientBench bench;
  bench.serve();
  for (size_t i = 0; i < 20; ++i) {
    bench.call(kSleep, "3600000");
    bench.advance(10s);
    REQUIRE(bench.at_server.size() == i + 1);
    bench.at_server.back()->close(bench.now() + 1h);
    bench.advance(10ms);
    CHECK(bench.client.connections() <= 8);
    if (i < 5) CHECK(bench.client.connections() == i + 1);
  }
}

}  // namespace
}  // namespace tutti::wire
