#include "wire/server.h"

#include "wire/memory_world.h"
#include "wire/testing.h"

namespace tutti::wire {
namespace {

const Address kAddress = Address::tcp("memory", 7000);

Result<std::unique_ptr<Seal>> plain_seal() { return std::make_unique<PlainSeal>(); }

// Somebody who connects, and calls once greeted.
struct Visitor {
  std::unique_ptr<Connection> connection;
  std::string end;  // or why there is none
  std::string answer;
};

struct ServerBench {
  explicit ServerBench(ServerOptions options = {})
      : server(world.clock(), service.methods, plain_seal, named(std::move(options))) {
    world.network().listener = &listener;
    root.spawn(serve(*this));
  }
  ~ServerBench() {
    server.stop(now() + 1s);
    world.clock().advance(20s);
    CHECK(root.size() == 0);
  }
  static ServerOptions named(ServerOptions options) {
    options.connection.self = {"c", Role::agent, "node7"};
    return options;
  }
  Instant now() { return world.clock().now(); }
  void advance(Duration time) { world.clock().advance(time); }

  static Task<void> serve(ServerBench& bench) {
    auto served = co_await bench.server.serve(bench.listener);
    bench.served = served ? "well" : served.error().text();
    bench.served_at = bench.now();
  }
  static Task<void> visit(ServerBench& bench, Visitor& visitor) {
    auto stream = co_await bench.world.network().connect(kAddress);
    REQUIRE(stream.has_value());
    ConnectionOptions options{.self = {"c", Role::user, "ann"}, .address = "memory:7000"};
    std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
    auto greeted =
        co_await Connection::greet(bench.world.clock(), std::move(*stream), std::move(seal),
                                   Side::connecting, nullptr, std::move(options));
    if (!greeted) visitor.end = greeted.error().text();
    if (!greeted) co_return;
    visitor.connection = std::move(*greeted);
    auto ended = co_await visitor.connection->run();
    visitor.end = ended ? "well" : ended.error().text();
  }
  static Task<void> call(Visitor& visitor, Method<Blob, Blob> method, std::string text) {
    const Blob request = blob_of(text);
    auto reply = co_await visitor.connection->call(method, request);
    visitor.answer = reply ? text_of(*reply) : reply.error().text();
  }
  Visitor& visit() {
    Visitor& visitor = visitors.emplace_back();
    root.spawn(visit(*this, visitor));
    advance(0ms);
    return visitor;
  }
  // Connects and says nothing.
  void knock() {
    MemoryNetwork::Link link{std::make_shared<MemoryPipe>(1024),
                             std::make_shared<MemoryPipe>(1024)};
    listener.arrive(std::make_unique<MemoryStream>(link.to_server, link.to_client));
    silent.push_back(std::make_unique<MemoryStream>(link.to_client, link.to_server));
  }

  LogLines log;
  Executor executor;
  MemoryWorld world;
  MemoryListener listener{kAddress};
  TestService service{world.clock()};
  Server server;
  std::deque<Visitor> visitors;
  std::vector<std::unique_ptr<Stream>> silent;
  std::string served;
  Instant served_at{};
  Scope root{Scope::Root{}};
};

TEST_CASE("a server tells who joins and who leaves, and answers them") {
  std::vector<std::string> seen;
  ServerOptions options;
  options.joined = [&](Connection& who) { seen.push_back("+" + who.peer().identity.name); };
  options.left = [&](Connection& who) { seen.push_back("-" + who.peer().identity.name); };
  ServerBench bench(options);
  Visitor& ann = bench.visit();
  CHECK(seen == std::vector<std::string>{"+ann"});
  CHECK(bench.server.connections() == 1);
  bench.root.spawn(ServerBench::call(ann, kEcho, "hi"));
  bench.advance(0ms);
  CHECK(ann.answer == "hi");
  ann.connection->close(bench.now() + 1s);
  bench.advance(0ms);
  CHECK(seen == std::vector<std::string>{"+ann", "-ann"});
  CHECK(bench.server.connections() == 0);
  CHECK(ann.end == "well");
}

TEST_CASE("a server that stops lets calls finish and then returns") {
  ServerBench bench;
  Visitor& ann = bench.visit();
  bench.root.spawn(ServerBench::call(ann, kSleep, "500"));
  bench.advance(1ms);
  bench.server.stop(bench.now() + 10s);
  bench.advance(400ms);
  CHECK(bench.served.empty());
  bench.advance(200ms);
  CHECK(ann.answer == "500");
  CHECK(ann.end == "well");
  CHECK(bench.served == "well");
}

TEST_CASE("a server has stopped by the time it was given, whoever hangs on it") {
  for (const bool earlier_word : {false, true}) {
    ServerBench bench;
    bench.knock();
    Visitor& ann = bench.visit();
    bench.root.spawn(ServerBench::call(ann, kSleep, "50000"));
    bench.advance(1ms);
    CHECK(bench.server.greeting() == 1);
    const Instant by = bench.now() + 2s;
    if (earlier_word) bench.server.stop(by + 1h);
    bench.server.stop(by);
    bench.advance(1s);
    CHECK(bench.served.empty());
    bench.advance(5s);
    CHECK(bench.served == "well");
    CHECK(bench.served_at == by);
    CHECK(bench.service.cancelled == 1);
    CHECK(has(ann.answer, "closed the connection with 1 calls in flight"));
  }
}

TEST_CASE("a connection that is greeted while the server stops is told and closed") {
  ServerBench bench;
  Visitor& ann = bench.visitors.emplace_back();
  bench.root.spawn(ServerBench::visit(bench, ann));
  for (int round = 0; bench.server.greeting() == 0; ++round) {
    REQUIRE(round < 100);
    bench.executor.run_round();
  }
  bench.server.stop(bench.now() + 10s);
  bench.advance(1s);
  CHECK(ann.end == "well");
  CHECK(bench.served == "well");
}

TEST_CASE("a whole backlog at once does not pass the limit, nor hold up everybody else") {
  struct Probe {
    static Task<void> watch(MemoryListener& listener, size_t& left) {
      for (int i = 0; i < 10; ++i) co_await yield();
      left = listener.backlog();
    }
  };
  ServerBench bench({.max_connections = 20});
  for (int i = 0; i < 100; ++i) bench.knock();
  size_t left = 0;
  bench.root.spawn(Probe::watch(bench.listener, left));
  bench.advance(0ms);
  CHECK(left > 0);
  CHECK(bench.listener.backlog() == 0);
  CHECK(bench.server.greeting() == 20);
  CHECK(bench.log.count("turned a connection away") == 10);
}

TEST_CASE("those who say nothing leave room for those who do, and go in time") {
  ServerBench bench({.max_connections = 100, .max_greeting = 10});
  for (int i = 0; i < 50; ++i) bench.knock();
  bench.advance(1s);
  CHECK(bench.server.greeting() == 10);
  CHECK(has(bench.visit().end, "greeting memory:7000"));
  bench.advance(10s);
  CHECK(bench.server.greeting() == 0);
  for (int i = 0; i < 30; ++i) bench.visit();
  CHECK(bench.server.connections() == 30);
}

TEST_CASE("a server that is out of descriptors waits and goes on") {
  ServerBench bench;
  for (int i = 0; i < 100; ++i) bench.listener.arrive(fail(Code::exhausted, "see `ulimit -n`"));
  bench.advance(1s);
  CHECK(bench.listener.backlog() > 50);
  bench.advance(5s);
  bench.visit();
  CHECK(bench.server.connections() == 1);
  CHECK(bench.log.count("ulimit -n") <= 10);
}

TEST_CASE("a listener that fails ends the server and its connections") {
  ServerBench bench;
  Visitor& ann = bench.visit();
  bench.listener.arrive(fail(Code::io, "the card is gone"));
  bench.advance(0ms);
  CHECK(bench.served == "accepting at memory:7000: the card is gone");
  CHECK(!ann.end.empty());
}

}  // namespace
}  // namespace tutti::wire
