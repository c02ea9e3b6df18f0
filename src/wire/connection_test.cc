#include "wire/connection.h"

#include "wire/testing.h"
#include "wire/wire.pb.h"

namespace tutti::wire {
namespace {

TEST_CASE("a call gives its reply") {
  TestPeers peers;
  CHECK(peers.call_now(kEcho, "hello") == "hello");
  CHECK(peers.call_now(kEcho, "") == "");
  CHECK(peers.server->peer().text() == "user ann (mem:2)");
  CHECK(peers.client->peer().text() == "agent node7 (mem:1)");
}

TEST_CASE("large messages arrive whole, over a narrow pipe and with a small window") {
  for (const size_t capacity : {1000UL, 100'000UL}) {
    TestPeers peers({.stream_window = kSmallestWindow}, capacity);
    for (const size_t size : {16'384UL, 16'385UL, 100'000UL, 3'000'001UL}) {
      std::string text(size, '.');
      for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + (i * i) % 26);
      CHECK(peers.call_now(kEcho, text) == text);
    }
    CHECK(peers.client->budget_in_use() == 0);
    CHECK(peers.server->budget_in_use() == 0);
  }
}

TEST_CASE("calls in flight end in any order, each with its own reply") {
  TestPeers peers;
  peers.call(kSleep, "30");
  peers.call(kSleep, "10");
  peers.call(kSleep, "20");
  peers.clock.advance(50ms);
  CHECK(peers.log == std::vector<std::string>{"10", "20", "30"});
}

TEST_CASE("the side that accepted can call the side that connected") {
  TestPeers peers;
  peers.calls.spawn(TestPeers::note_call(peers, *peers.server, kEcho, "up", {}));
  peers.clock.advance(0ms);
  CHECK(peers.log == std::vector<std::string>{"up"});
  CHECK(peers.at_client.started == 1);
}

TEST_CASE("an error travels with its code and context") {
  TestPeers peers;
  peers.call(kFail, "it is there");
  peers.clock.advance(0ms);
  CHECK(peers.codes.at(0) == Code::exists);
  CHECK(peers.log.at(0) ==
        "calling test.fail of agent node7 (mem:1): from agent node7 (mem:1): outer: inner: it is "
        "there");
}

TEST_CASE("an unknown method is answered with the methods there are") {
  TestPeers peers;
  const Method<Blob, Blob> missing("test.ecko");
  const std::string answer = peers.call_now(missing, "x");
  CHECK(has(answer, "calling test.ecko"));
  CHECK(has(answer, "test.echo, test.echo_stream"));
}

TEST_CASE("a deadline ends the call here and cancels the handler there") {
  TestPeers peers;
  peers.call(kSleep, "1000", {.deadline = peers.clock.now() + 10ms});
  peers.clock.advance(9ms);
  CHECK(peers.log.empty());
  CHECK(peers.at_server.started == 1);
  CHECK(peers.at_server.last_deadline == peers.clock.now() + 1ms);
  peers.clock.advance(2ms);
  CHECK(peers.codes.at(0) == Code::deadline);
  CHECK(has(peers.log.at(0), "calling test.sleep of agent node7"));
  CHECK(peers.at_server.cancelled == 1);
  CHECK(peers.client->calls_in_flight() == 0);
}

TEST_CASE("a handler is cancelled at the deadline even when the caller's word does not come") {
  TestPeers peers;
  peers.call(kSleep, "1000", {.deadline = peers.clock.now() + 10ms});
  peers.clock.advance(1ms);
  peers.to_server->hold();
  peers.clock.advance(10ms);
  CHECK(peers.at_server.cancelled == 1);
  peers.to_server->release();
}

TEST_CASE("a unary call without a deadline has the default one") {
  TestPeers peers({.default_timeout = 5s});
  peers.call(kSleep, "100000");
  peers.clock.advance(5s);
  CHECK(peers.codes.at(0) == Code::deadline);
}

TEST_CASE("a nested call ends with the call it is made for") {
  TestPeers peers;
  peers.call(kNested, "100000", {.deadline = peers.clock.now() + 20ms});
  peers.clock.advance(1ms);
  CHECK(peers.at_client.last_deadline == peers.clock.now() + 19ms);
  peers.clock.advance(20ms);
  CHECK(peers.codes.at(0) == Code::deadline);
  CHECK(peers.at_client.cancelled == 1);
}

TEST_CASE("cancelling a call reaches its handler, and its slot is used again only after that") {
  TestPeers peers({.max_calls = 1});
  Scope scope{Scope::Root{}};
  scope.spawn(TestPeers::note_call(peers, *peers.client, kSleep, "1000", {}));
  peers.clock.advance(1ms);
  peers.to_server->hold();
  scope.cancel();
  peers.clock.advance(1ms);
  CHECK(peers.codes.at(0) == Code::cancelled);
  peers.call(kEcho, "next");
  peers.clock.advance(1ms);
  CHECK(peers.log.size() == 1);
  peers.to_server->release();
  peers.clock.advance(1ms);
  CHECK(peers.at_server.cancelled == 1);
  CHECK(peers.log.at(1) == "next");
}

TEST_CASE("more calls than slots wait their turn") {
  TestPeers peers({.max_calls = 4});
  for (int i = 0; i < 20; ++i) peers.call(kSleep, "10");
  peers.clock.advance(1ms);
  CHECK(peers.client->calls_in_flight() == 4);
  peers.clock.advance(9ms);
  CHECK(peers.log.size() == 4);
  peers.clock.advance(50ms);
  CHECK(peers.log.size() == 20);
  CHECK(peers.at_server.started == 20);
}

TEST_CASE("a message over the peer's limit is refused before it is sent") {
  TestPeers peers({.max_message = 100'000});
  CHECK(has(peers.call_now(kEcho, std::string(100'001, 'x')), "over the peer's limit of 100000"));
  CHECK(peers.call_now(kEcho, std::string(100'000, 'x')).size() == 100'000);
}

inline constexpr Method<proto::GoAway, proto::Failure> kProto{"test.proto"};

Task<Result<proto::Failure>> answer_proto(CallContext&, const proto::GoAway& request) {
  proto::Failure reply;
  reply.set_message(request.reason() + "!");
  co_return reply;
}

Task<void> call_proto(TestPeers& peers) {
  proto::GoAway request;
  for (const size_t size : {5UL, 200'000UL}) {
    request.set_reason(std::string(size, 'm'));
    auto reply = co_await peers.client->call(kProto, request);
    REQUIRE(reply.has_value());
    CHECK(reply->message() == std::string(size, 'm') + "!");
  }
  const Method<Blob, Blob> as_blob("test.proto");
  const Blob garbage = blob_of("\x0a\xff");
  auto refused = co_await peers.client->call(as_blob, garbage);
  CHECK(refused.error().code() == Code::corrupt);
  CHECK(has(refused.error().text(), "2 bytes do not parse as tutti.wire.proto.GoAway"));
  peers.log.push_back("done");
}

TEST_CASE("protobuf messages travel; bytes that are none are refused, and the connection goes on") {
  TestPeers peers;
  peers.at_server.methods.add(kProto, answer_proto);
  peers.calls.spawn(call_proto(peers));
  peers.clock.advance(1ms);
  CHECK(peers.log == std::vector<std::string>{"done"});
  CHECK(peers.call_now(kEcho, "still here") == "still here");
}

TEST_CASE("closing lets calls in flight finish and refuses new ones") {
  TestPeers peers;
  peers.call(kSleep, "50");
  peers.clock.advance(1ms);
  peers.server->close(peers.clock.now() + 1s, "upgrade");
  peers.clock.advance(1ms);
  CHECK(!peers.client->usable());
  CHECK(has(peers.call_now(kEcho, "late"), "agent node7 (mem:1) takes no more calls: upgrade"));
  CHECK(peers.log.empty());
  peers.clock.advance(60ms);
  CHECK(peers.log == std::vector<std::string>{"50"});
  CHECK(peers.client_end == "well");
  CHECK(peers.server_end == "well");
}

TEST_CASE("a request that crosses the goaway is refused unstarted") {
  TestPeers peers;
  peers.to_client->hold();
  peers.server->close(peers.clock.now() + 1s, "upgrade");
  peers.call(kSleep, "5");
  peers.clock.advance(0ms);
  peers.to_client->release();
  peers.clock.advance(10ms);
  CHECK(peers.codes.at(0) == Code::unavailable);
  CHECK(has(peers.log.at(0), "not started: this side is closing"));
  CHECK(peers.at_server.started == 0);
  CHECK(peers.client_end == "well");
  CHECK(peers.server_end == "well");
}

TEST_CASE("both sides may close at once, with requests on their way to each other") {
  TestPeers peers;
  peers.to_client->hold();
  peers.to_server->hold();
  peers.call(kSleep, "5");
  peers.calls.spawn(TestPeers::note_call(peers, *peers.server, kSleep, "5", {}));
  peers.clock.advance(0ms);
  peers.server->close(peers.clock.now() + 1s, "one");
  peers.client->close(peers.clock.now() + 1s, "two");
  peers.clock.advance(1ms);
  peers.to_client->release();
  peers.to_server->release();
  peers.clock.advance(1ms);
  REQUIRE(peers.log.size() == 2);
  for (const std::string& answer : peers.log) CHECK(has(answer, "not started"));
  CHECK(peers.client_end == "well");
  CHECK(peers.server_end == "well");
}

TEST_CASE("a connection is closed by the earliest time it was given") {
  TestPeers peers;
  peers.call(kSleep, "7200000", {.deadline = peers.clock.now() + 2h});
  peers.clock.advance(1ms);
  peers.server->close(peers.clock.now() + 1h);
  peers.server->close(peers.clock.now() + 1s);
  peers.server->close(peers.clock.now() + 2h);
  peers.clock.advance(2s);
  CHECK(has(peers.server_end, "1 calls were still in flight when the time to close was up"));
}

TEST_CASE("a peer that says goaway is left, whether it closes or not") {
  TestPeers peers;
  peers.to_server->hold();
  peers.server->close(peers.clock.now() + 1h);
  peers.clock.advance(1s);
  CHECK(!peers.client->usable());
  CHECK(peers.client_end.empty());
  peers.clock.advance(5s);
  CHECK(has(peers.client_end, "the time to close was up"));
  peers.to_server->release();
}

TEST_CASE("what does not finish by the closing deadline is cut off") {
  TestPeers peers;
  peers.call(kSleep, "50000");
  peers.clock.advance(1ms);
  peers.client->close(peers.clock.now() + 100ms);
  peers.clock.advance(99ms);
  CHECK(peers.log.empty());
  peers.clock.advance(2ms);
  CHECK(peers.codes.at(0) == Code::unavailable);
  CHECK(peers.at_server.cancelled == 1);
  CHECK(has(peers.client_end, "1 calls were still in flight"));
}

TEST_CASE("cancelling a connection's strand ends its calls and waits for its handlers") {
  TestPeers peers;
  peers.call(kSleep, "50000");
  peers.clock.advance(1ms);
  peers.root.cancel();
  peers.clock.advance(0ms);
  CHECK(peers.codes.at(0) == Code::unavailable);
  CHECK(peers.at_server.cancelled == 1);
  CHECK(peers.root.size() == 0);
}

TEST_CASE("a crash destroys calls and handlers where they stand") {
  TestPeers peers;
  peers.call(kSleep, "50000");
  peers.call(kNested, "50000");
  peers.clock.advance(1ms);
  SUBCASE("connections first") {
    peers.root.kill();
    peers.forget_streams();
    peers.client.reset();
    peers.server.reset();
    peers.calls.kill();
  }
  SUBCASE("callers first") {
    peers.calls.kill();
    peers.root.kill();
    peers.forget_streams();
    peers.client.reset();
    peers.server.reset();
  }
  CHECK(live_frames == 0);
}

}  // namespace
}  // namespace tutti::wire
