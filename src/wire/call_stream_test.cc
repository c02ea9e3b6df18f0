#include "wire/call_stream.h"

#include "wire/testing.h"

namespace tutti::wire {
namespace {

using TestStream = ClientStream<Blob, Blob>;

Task<void> send_all(TestStream& stream, std::vector<size_t> sizes) {
  for (const size_t size : sizes) {
    const Blob message = blob_of(std::string(size, static_cast<char>('a' + size % 26)));
    auto sent = co_await stream.send(message);
    REQUIRE_MESSAGE(sent.has_value(), (sent ? "" : sent.error().text()));
  }
  auto finished = co_await stream.finish();
  CHECK(finished.has_value());
}

Task<void> exchange_sizes(TestPeers& peers, std::vector<size_t> sizes) {
  auto stream = co_await peers.client->open(kEchoStream);
  REQUIRE(stream.has_value());
  Scope scope;
  scope.spawn(send_all(*stream, sizes));
  for (const size_t size : sizes) {
    auto message = co_await stream->recv();
    REQUIRE(message.has_value());
    REQUIRE(message->has_value());
    CHECK(text_of(**message) == std::string(size, static_cast<char>('a' + size % 26)));
  }
  auto end = co_await stream->recv();
  CHECK(end.has_value());
  CHECK(!end->has_value());
  auto joined = co_await scope.join();
  peers.log.push_back("done");
}

TEST_CASE("messages of all sizes keep their order both ways") {
  for (const size_t capacity : {500UL, 100'000UL}) {
    TestPeers peers({.stream_window = kSmallestWindow}, capacity);
    std::vector<size_t> sizes;
    for (size_t i = 0; i < 200; ++i) sizes.push_back(i * 7919 % 40'000);
    sizes.push_back(1'500'000);
    sizes.push_back(3);
    peers.calls.spawn(exchange_sizes(peers, sizes));
    peers.clock.advance(1ms);
    CHECK(peers.log == std::vector<std::string>{"done"});
    CHECK(peers.client->budget_in_use() == 0);
    CHECK(peers.server->budget_in_use() == 0);
  }
}

Task<void> send_until_stuck(TestPeers& peers, size_t size, uint64_t& sent_bytes) {
  auto stream = co_await peers.client->open(kDeaf);
  REQUIRE(stream.has_value());
  const Blob message = blob_of(std::string(size, 'm'));
  for (;;) {
    auto sent = co_await stream->send(message);
    if (!sent) {
      peers.log.push_back(sent.error().text());
      co_return;
    }
    sent_bytes += size;
  }
}

TEST_CASE("a consumer that stops reading stops its own stream only, within bounds") {
  TestPeers peers;
  uint64_t sent = 0;
  SUBCASE("small messages fill the window") {
    peers.calls.spawn(send_until_stuck(peers, 1000, sent));
    peers.clock.advance(1s);
    CHECK(sent == 61'000);
  }
  SUBCASE("so do messages of one byte") {
    peers.calls.spawn(send_until_stuck(peers, 1, sent));
    peers.clock.advance(1s);
    CHECK(sent == 65'536 / (1 + kMessageCost));
  }
  SUBCASE("large messages fill the stream's budget") {
    peers.calls.spawn(send_until_stuck(peers, 1'000'000, sent));
    peers.clock.advance(1s);
    CHECK(sent == 4'000'000);
    CHECK(peers.server->budget_in_use() == 4'000'000);
  }
  CHECK(peers.call_now(kEcho, "others go on") == "others go on");
  CHECK(peers.call_now(kEcho, std::string(500'000, 'x')).size() == 500'000);
  peers.calls.cancel();
  peers.clock.advance(1ms);
  CHECK(has(peers.log.at(0), "cancelled"));
  CHECK(peers.at_server.cancelled == 1);
  CHECK(peers.server->budget_in_use() == 0);
}

Task<void> read_slowly(TestPeers& peers, int& got) {
  auto stream = co_await peers.client->open(kFlood);
  REQUIRE(stream.has_value());
  for (;;) {
    auto message = co_await stream->recv();
    if (!message) co_return;
    ++got;
    auto slept = co_await peers.clock.sleep(10ms);
    if (!slept) co_return;
  }
}

TEST_CASE("a slow reader sets the pace of the sender") {
  TestPeers peers;
  int got = 0;
  peers.calls.spawn(read_slowly(peers, got));
  peers.clock.advance(1s);
  CHECK(got >= 100);
  CHECK(peers.at_server.flooded <= got + 64 + 64);
  peers.calls.cancel();
  peers.clock.advance(1ms);
  CHECK(peers.server->calls_in_flight() == 0);
}

Task<void> drop_early(TestPeers& peers) {
  auto stream = co_await peers.client->open(kDeaf);
  REQUIRE(stream.has_value());
  auto slept = co_await peers.clock.sleep(1ms);
}

TEST_CASE("a stream that dies before its end cancels the handler") {
  TestPeers peers;
  peers.calls.spawn(drop_early(peers));
  peers.clock.advance(2ms);
  CHECK(peers.at_server.cancelled == 1);
  CHECK(peers.client->calls_in_flight() == 0);
}

Task<void> await_end(TestPeers& peers, CallOptions options) {
  auto stream = co_await peers.client->open(kDeaf, options);
  REQUIRE(stream.has_value());
  auto message = co_await stream->recv();
  peers.codes.push_back(message.error().code());
}

TEST_CASE("a stream ends at its deadline, on both sides") {
  TestPeers peers;
  peers.calls.spawn(await_end(peers, {.deadline = peers.clock.now() + 30ms}));
  peers.clock.advance(31ms);
  CHECK(peers.codes.at(0) == Code::deadline);
  CHECK(peers.at_server.cancelled == 1);
}

TEST_CASE("a stream ends with its connection") {
  TestPeers peers;
  peers.calls.spawn(await_end(peers, {}));
  peers.clock.advance(1ms);
  peers.to_client->reset();
  peers.clock.advance(1ms);
  CHECK(peers.codes.at(0) == Code::unavailable);
}

}  // namespace
}  // namespace tutti::wire
