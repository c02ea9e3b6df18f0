// What a connection does when the other side, or what is between, misbehaves.
#include "wire/testing.h"
#include "wire/wire.pb.h"

namespace tutti::wire {
namespace {

struct Greeting {
  Executor executor;
  ManualClock clock;
  std::shared_ptr<MemoryPipe> in = std::make_shared<MemoryPipe>(10'000);
  std::shared_ptr<MemoryPipe> out = std::make_shared<MemoryPipe>(10'000);
  Scope root{Scope::Root{}};
  std::optional<Error> error;

  static Task<void> accept(Greeting& greeting, ConnectionOptions options) {
    std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(greeting.in, greeting.out);
    std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
    auto greeted = co_await Connection::greet(greeting.clock, std::move(stream), std::move(seal),
                                              Side::accepting, nullptr, std::move(options));
    if (!greeted) greeting.error = greeted.error();
  }
  void accept(ConnectionOptions options = {.address = "10.0.0.9:1"}) {
    root.spawn(accept(*this, std::move(options)));
    clock.advance(0ms);
  }
};

TEST_CASE("garbage instead of a hello gets no answer") {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100, '\xff'),
        frame(FrameType::ping, 0, 0, ""), frame(FrameType::hello, 0, 0, "not the magic")}) {
    Greeting greeting;
    greeting.accept();
    greeting.in->inject(garbage);
    greeting.clock.advance(0ms);
    REQUIRE(greeting.error);
    CHECK(greeting.error->code() == Code::corrupt);
    CHECK(has(greeting.error->text(), "10.0.0.9:1"));
    CHECK(greeting.out->written() == 0);
  }
}

TEST_CASE("a peer that says nothing, or half a hello, is dropped in time") {
  for (const std::string_view said : {"", "TUT"}) {
    Greeting greeting;
    greeting.accept();
    greeting.in->inject(said);
    greeting.clock.advance(9s);
    CHECK(!greeting.error);
    greeting.clock.advance(2s);
    REQUIRE(greeting.error);
    CHECK(greeting.error->code() == Code::deadline);
    CHECK(has(greeting.error->text(), "did not say hello within 10"));
  }
}

Result<std::string> meet(ConnectionOptions connecting, ConnectionOptions accepting,
                         std::string& told_accepting) {
  Greeting greeting;
  greeting.accept(std::move(accepting));
  std::optional<Result<std::string>> outcome;
  struct Client {
    static Task<void> run(Greeting& greeting, ConnectionOptions options,
                          std::optional<Result<std::string>>& out) {
      std::unique_ptr<Stream> stream = std::make_unique<MemoryStream>(greeting.out, greeting.in);
      std::unique_ptr<Seal> seal = std::make_unique<PlainSeal>();
      auto greeted = co_await Connection::greet(greeting.clock, std::move(stream), std::move(seal),
                                                Side::connecting, nullptr, std::move(options));
      if (greeted) {
        out.emplace((*greeted)->peer().text());
      } else {
        out.emplace(fail(greeted.error()));
      }
    }
  };
  greeting.root.spawn(Client::run(greeting, std::move(connecting), outcome));
  greeting.clock.advance(0ms);
  told_accepting = greeting.error ? greeting.error->text() : "";
  return *outcome;
}

Result<void> only_agents(const Identity& peer) {
  if (peer.role == Role::agent) return {};
  return fail(Code::denied, "only agents are welcome, not {} {}", role_name(peer.role), peer.name);
}

TEST_CASE("unknown clusters, versions and peers are told why they are rejected") {
  const ConnectionOptions us{
      .self = {"lab", Role::head, "h1"}, .address = "b", .admit = only_agents};
  const ConnectionOptions good{.self = {"lab", Role::agent, "n1"}, .address = "a"};
  std::string told;
  CHECK(meet(good, us, told).value() == "head h1 (a)");
  CHECK(told.empty());

  ConnectionOptions other = good;
  other.self.cluster = "prod";
  auto result = meet(other, us, told);
  CHECK(result.error().code() == Code::denied);
  CHECK(has(result.error().text(), "agent n1 is of cluster 'prod', this is cluster 'lab'"));
  CHECK(has(told, "of cluster 'prod'"));

  ConnectionOptions newer = good;
  newer.lowest_version = newer.highest_version = 7;
  result = meet(newer, us, told);
  CHECK(result.error().code() == Code::unsupported);
  CHECK(has(result.error().text(), "speaks protocol versions 7 to 7, h1 0.1.0 speaks 1 to 1"));

  ConnectionOptions user = good;
  user.self.role = Role::user;
  result = meet(user, us, told);
  CHECK(result.error().code() == Code::denied);
  CHECK(has(result.error().text(), "only agents are welcome, not user n1"));
}

TEST_CASE("every break of the protocol ends the connection with a reason") {
  const uint32_t call = 1U << 16;  // slot 0, generation 1
  std::string head(16, '\0');
  store_le(as_mutable_bytes(head).data(), kDeaf.id);
  const std::string open = frame(FrameType::request, FrameFlags::opener, call, head);
  std::string total(8, '\0');
  store_le(as_mutable_bytes(total).data(), uint64_t{100'000'000'000});
  const std::vector<std::pair<std::string, std::string>> breaks = {
      {"garbage of more than a header", "not a frame type"},
      {frame(FrameType::hello, 0, 0, ""), "a hello frame in the middle"},
      {frame(FrameType::request, FrameFlags::opener, call, "short"), "garbled request"},
      {frame(FrameType::request, FrameFlags::opener, call | 60'000, head), "slot 60000 of 1024"},
      {open + open, "opened slot 0 twice"},
      {frame(FrameType::goaway, 0, 0, "") + open, "opened a call after its goaway"},
      {frame(FrameType::end, 0, 5U << 16 | 9, ""), "answered a call that was never made"},
      {open + frame(FrameType::data, FrameFlags::opener, call, "x"), "not announced"},
      {open + frame(FrameType::end, FrameFlags::opener, call, ""), "ended a call that we answer"},
      {open + frame(FrameType::message, FrameFlags::opener | FrameFlags::large, call, total),
       "announced a message of 100000000000 bytes"},
      {open + frame(FrameType::message, FrameFlags::opener | FrameFlags::message, call,
                    std::string(20'000, 'x')),
       "must be announced"},
      {open + frame(FrameType::message, FrameFlags::opener | FrameFlags::last, call, "") +
           frame(FrameType::message, FrameFlags::opener | FrameFlags::message, call, "x"),
       "after its last"},
      {open + frame(FrameType::credit, FrameFlags::opener, call, "123"), "garbled credit"},
  };
  for (const auto& [bytes, reason] : breaks) {
    TestPeers peers;
    peers.to_server->inject(bytes);
    peers.clock.advance(0ms);
    CAPTURE(reason);
    CHECK(has(peers.server_end, reason));
    CHECK(has(peers.server_end, "user ann (mem:2)"));
  }
}

TEST_CASE("a peer that breaks the protocol is told how") {
  TestPeers peers;
  peers.call(kSleep, "1000");
  peers.clock.advance(1ms);
  peers.to_server->inject(frame(FrameType::request, FrameFlags::opener, 1U << 16 | 1, "short"));
  peers.clock.advance(0ms);
  CHECK(has(peers.server_end, "garbled request"));
  CHECK(peers.codes.at(0) == Code::unavailable);
  CHECK(has(peers.log.at(0), "with 1 calls in flight: agent node7 (mem:1) takes no more calls"));
  CHECK(has(peers.log.at(0), "the peer broke the protocol: a garbled request"));
}

TEST_CASE("a peer that breaks the protocol and does not listen is not waited for") {
  TestPeers peers;
  peers.call(kSleep, "1000");
  peers.clock.advance(1ms);
  peers.to_client->hold();
  peers.to_server->inject("garbage of more than a header");
  peers.clock.advance(0ms);
  CHECK(peers.at_server.cancelled == 1);
  CHECK(peers.server_end.empty());
  peers.clock.advance(6s);
  CHECK(has(peers.server_end, "not a frame type"));
}

TEST_CASE("a peer that sends past its credit is cut off") {
  TestPeers peers;
  const uint32_t call = 1U << 16;
  std::string head(16, '\0');
  store_le(as_mutable_bytes(head).data(), kDeaf.id);
  std::string bytes = frame(FrameType::request, FrameFlags::opener, call, head);
  for (int i = 0; i < 5; ++i)
    bytes += frame(FrameType::message, FrameFlags::opener | FrameFlags::message, call,
                   std::string(16'000, 'x'));
  peers.to_server->inject(bytes);
  peers.clock.advance(0ms);
  CHECK(has(peers.server_end, "sent 16064 bytes with credit for 1280"));
}

TEST_CASE("a peer that asks without reading the answers is cut off, within bounds") {
  TestPeers peers({.max_queued = 100'000, .max_queued_control = 10'000});
  peers.to_client->hold();
  const std::string ping = frame(FrameType::ping, 0, 0, std::string(100, 'p'));
  size_t worst = 0;
  for (int i = 0; i < 5000 && peers.server_end.empty(); ++i) {
    peers.to_server->inject(ping);
    peers.clock.advance(0ms);
    worst = std::max(worst, peers.server->queued_bytes());
  }
  CHECK(has(peers.server_end, "does not read what it makes us say"));
  CHECK(worst < 111'000);
}

TEST_CASE("a reset in the middle of a frame ends every call with the peer's name") {
  TestPeers peers;
  peers.call(kSleep, "1000");
  peers.call(kEcho, std::string(200'000, 'x'));
  peers.to_client->hold();
  peers.clock.advance(1ms);
  peers.to_client->reset();
  peers.to_server->reset();
  peers.clock.advance(1ms);
  REQUIRE(peers.log.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(peers.codes[i] == Code::unavailable);
    CHECK(has(peers.log[i], "agent node7 (mem:1)"));
  }
  CHECK(peers.at_server.cancelled == 1);
}

TEST_CASE("a call that ends while its data is coming leaves the rest of it to nobody") {
  TestPeers peers({}, 10'000);
  peers.to_server->hold();
  peers.call(kEcho, std::string(200'000, 'x'), {.deadline = peers.clock.now() + 10ms});
  peers.clock.advance(1ms);
  peers.to_server->release();
  peers.to_server->hold();  // a part of a data frame has come
  peers.clock.advance(20ms);
  CHECK(peers.codes.at(0) == Code::deadline);
  peers.to_server->release();
  peers.clock.advance(1ms);
  CHECK(peers.call_now(kEcho, std::string(200'000, 'y')).size() == 200'000);
  CHECK(peers.server->calls_in_flight() == 0);
}

TEST_CASE("a stream that ends inside a frame is an error that says where") {
  TestPeers peers;
  const std::string ping = frame(FrameType::ping, 0, 0, "0123456789");
  peers.to_server->inject(std::string_view(ping).substr(0, 20));
  peers.to_server->close();
  peers.clock.advance(1ms);
  CHECK(has(peers.server_end, "the stream ended inside the frame at byte"));
}

TEST_CASE("a peer that is gone without a word is noticed, and named to every call") {
  TestPeers peers;
  peers.call(kSleep, "600000", {.deadline = peers.clock.now() + 1h});
  peers.clock.advance(1ms);
  peers.to_server->hold();
  peers.to_client->hold();
  peers.clock.advance(60s);
  CHECK(peers.codes.at(0) == Code::unavailable);
  CHECK(has(peers.log.at(0), "agent node7 (mem:1) gave no sign of life for 20"));
  CHECK(!peers.server_end.empty());
}

TEST_CASE("a quiet connection stays up") {
  TestPeers peers;
  peers.clock.advance(24h);
  CHECK(peers.call_now(kEcho, "still here") == "still here");
}

TEST_CASE("a partition that heals in time costs nothing but time") {
  TestPeers peers;
  peers.to_server->hold();
  for (int i = 0; i < 10; ++i) peers.call(kEcho, "x", {.deadline = peers.clock.now() + 15s});
  peers.clock.advance(10s);
  CHECK(peers.log.empty());
  peers.to_server->release();
  peers.clock.advance(1ms);
  CHECK(peers.log.size() == 10);
  CHECK(peers.at_server.started == 10);
}

TEST_CASE("while the peer does not read, calls wait within bounds and end at their deadlines") {
  TestPeers peers({.max_queued = 50'000}, 10'000);
  peers.to_server->hold();
  for (int i = 0; i < 1000; ++i)
    peers.call(kEcho, std::string(1000, 'x'), {.deadline = peers.clock.now() + 5s});
  peers.clock.advance(1s);
  CHECK(peers.client->queued_bytes() < 61'100);
  CHECK(peers.client->calls_in_flight() < 100);
  peers.clock.advance(5s);
  CHECK(peers.log.size() == 1000);
  CHECK(peers.codes.at(999) == Code::deadline);
  peers.to_server->release();
  peers.clock.advance(1s);
  CHECK(peers.call_now(kEcho, "again") == "again");
  CHECK(peers.client->calls_in_flight() == 0);
}

}  // namespace
}  // namespace tutti::wire
