// Calls as their frames tell them: what a peer may say, what it may not, and what that costs.
#include "wire/exchange.h"

#include "wire/raw_peer.h"

namespace tutti::wire {
namespace {

constexpr uint8_t kOpener = FrameFlags::opener;
constexpr uint8_t kMessage = FrameFlags::message;
constexpr uint8_t kLarge = FrameFlags::large;
constexpr uint8_t kLast = FrameFlags::last;

TEST_CASE(
    "a call that is given up amid its announced end frees its slot, and what follows is lost") {
  RawPeer peer(Side::connecting);
  Scope caller{Scope::Root{}};
  caller.spawn(RawPeer::note_call(peer, kEcho, "x", {.deadline = peer.clock.now() + 10ms}));
  peer.clock.advance(0ms);
  const uint32_t stream = peer.hear().at(0).stream;
  peer.say(frame(FrameType::end, kLarge, stream, u64(100'000)));
  peer.say(frame(FrameType::data, 0, stream, std::string(1000, 'd')));
  SUBCASE("at its deadline") {
    peer.clock.advance(10ms);
    CHECK(peer.codes.at(0) == Code::deadline);
  }
  SUBCASE("cancelled") {
    caller.cancel();
    peer.clock.advance(0ms);
    CHECK(peer.codes.at(0) == Code::cancelled);
  }
  CHECK(peer.hear().back().type == FrameType::cancel);
  CHECK(peer.connection->calls_in_flight() == 0);
  CHECK(peer.connection->budget_in_use() == 0);

  peer.call(kEcho, "y");
  const uint32_t next = peer.hear().at(0).stream;
  CHECK(next != stream);
  CHECK(static_cast<uint16_t>(next) == static_cast<uint16_t>(stream));
  peer.say(frame(FrameType::data, 0, stream, std::string(50'000, 'd')));
  peer.say(frame(FrameType::failure, 0, stream, ""));
  CHECK(peer.connection->calls_in_flight() == 1);
  peer.say(frame(FrameType::end, kMessage, next, "yes"));
  CHECK(peer.log.at(1) == "yes");
  CHECK(peer.ended.empty());
}

TEST_CASE("both sides forget a call that is given up amid its large reply, and close in order") {
  TestPeers peers({}, 10'000);
  peers.call(kEcho, std::string(200'000, 'x'), {.deadline = peers.clock.now() + 10ms});
  peers.to_client->hold();
  peers.clock.advance(1ms);
  peers.to_client->release();
  peers.to_client->hold();  // the announcement and some of the data have come
  peers.clock.advance(20ms);
  CHECK(peers.codes.at(0) == Code::deadline);
  peers.to_client->release();
  peers.clock.advance(1ms);
  CHECK(peers.client->calls_in_flight() == 0);
  CHECK(peers.server->calls_in_flight() == 0);
  CHECK(peers.call_now(kEcho, std::string(200'000, 'y')) == std::string(200'000, 'y'));
  peers.client->close(peers.clock.now() + 1s);
  peers.clock.advance(1ms);
  CHECK(peers.client_end == "well");
  CHECK(peers.server_end == "well");
}

TEST_CASE("the last message may come before the end") {
  RawPeer peer(Side::connecting);
  peer.call(kEcho, "x");
  const uint32_t stream = peer.hear().at(0).stream;
  peer.say(frame(FrameType::message, kMessage | kLast, stream, "reply"));
  CHECK(peer.log.empty());
  peer.say(frame(FrameType::end, 0, stream, ""));
  CHECK(peer.log.at(0) == "reply");
  CHECK(peer.ended.empty());
}

TEST_CASE("an answerer that breaks the protocol is cut off with a reason") {
  struct Break {
    FrameType type;
    uint8_t flags;
    std::string payload;
    std::string reason;
  };
  const std::vector<Break> breaks = {
      {FrameType::cancel, 0, "", "cancelled a call that it did not open"},
      {FrameType::credit, 0, u64(UINT64_MAX), "credit without end"},
      {FrameType::message, kLarge, u64(16'384), "announced a message of 16384 bytes"},
      {FrameType::message, kLarge, "short", "garbled announcement"},
      {FrameType::message, 0, "x", "bytes that are no message"},
      {FrameType::failure, 0, "\x0a\xff", "a failure that does not parse"},
  };
  for (const Break& wrong : breaks) {
    CAPTURE(wrong.reason);
    RawPeer peer(Side::connecting);
    peer.call(kEcho, "x");
    const uint32_t stream = peer.hear().at(0).stream;
    peer.say(frame(wrong.type, wrong.flags, stream, wrong.payload));
    CHECK(has(peer.how_it_ended(), wrong.reason));
    CHECK(peer.codes.at(0) == Code::unavailable);
  }
}

TEST_CASE("an opener that breaks the protocol is cut off with a reason") {
  const uint32_t call = stream_of(0);
  const std::string open = open_call(kDeaf.id, call);
  const std::string announced = frame(FrameType::message, kOpener | kLarge, call, u64(100'000));
  std::string reserved = frame(FrameType::ping, 0, 0, "");
  reserved[14] = 1;
  const std::vector<std::pair<std::string, std::string>> breaks = {
      {open + frame(FrameType::failure, kOpener, call, ""), "failed a call that we answer"},
      {open + announced + frame(FrameType::message, kOpener | kMessage, call, "x"),
       "a message inside a message"},
      {open + announced + announced, "a message inside a message"},
      {open + announced + frame(FrameType::data, kOpener, call, std::string(70'000, 'x')) +
           frame(FrameType::data, kOpener, call, std::string(70'000, 'x')),
       "70000 bytes came for the last 30000 of a message"},
      {open + frame(FrameType::credit, kOpener, call, u64(UINT64_MAX)), "credit without end"},
      {frame(FrameType::ping, 16, 0, ""), "flags 0x10 are not known"},
      {reserved, "the reserved bytes are not zero"},
  };
  for (const auto& [bytes, reason] : breaks) {
    CAPTURE(reason);
    RawPeer peer(Side::accepting);
    peer.say(bytes);
    CHECK(has(peer.how_it_ended(), reason));
  }
}

TEST_CASE("empty messages cost credit, so that nobody can queue them without end") {
  RawPeer peer(Side::accepting);
  peer.say(open_call(kDeaf.id, stream_of(0)));
  const std::string empty = frame(FrameType::message, kOpener | kMessage, stream_of(0), "");
  for (int i = 0; i < 1024; ++i) peer.say(empty);
  CHECK(peer.ended.empty());
  peer.say(empty);
  CHECK(has(peer.how_it_ended(), "sent 64 bytes with credit for 0"));
}

TEST_CASE("large messages are received up to the budget, the rest within their windows") {
  RawPeer peer(Side::accepting, {.receive_budget = 1'000'000});
  for (uint16_t slot = 0; slot < 3; ++slot) {
    peer.say(open_call(kDeaf.id, stream_of(slot)));
    peer.say(frame(FrameType::message, kOpener | kLarge, stream_of(slot), u64(600'000)));
  }
  CHECK(peer.connection->budget_in_use() == 600'000);
  const auto grants = peer.hear();
  REQUIRE(grants.size() == 1);
  CHECK(grants[0].type == FrameType::credit);
  CHECK(grants[0].payload == u64(600'000));

  const auto data = [](uint16_t slot, size_t size) {
    return frame(FrameType::data, kOpener, stream_of(slot), std::string(size, 'd'));
  };
  SUBCASE("no more than a window without the budget") {
    peer.say(data(1, 65'536));
    CHECK(peer.ended.empty());
    peer.say(data(1, 1));
    CHECK(has(peer.how_it_ended(), "sent 1 bytes with credit for 0"));
  }
  SUBCASE("the budget comes back with the stream that held it, and what came before it counts") {
    peer.say(data(1, 65'536));
    peer.say(data(0, 200'000));
    peer.say(frame(FrameType::cancel, kOpener, stream_of(0), ""));
    const auto after = peer.hear();
    REQUIRE(after.size() == 2);  // the first stream's end, the second's credit
    CHECK(after[1].stream == stream_of(1));
    CHECK(after[1].payload == u64(600'000));
    peer.say(data(1, 200'000) + data(1, 200'000) + data(1, 600'000 - 465'536));
    CHECK(peer.ended.empty());
    CHECK(peer.connection->budget_in_use() == 600'000);
  }
  SUBCASE("who stands behind one that gives up goes on") {
    peer.say(frame(FrameType::cancel, kOpener, stream_of(1), ""));
    peer.say(frame(FrameType::cancel, kOpener, stream_of(0), ""));
    CHECK(peer.connection->budget_in_use() == 600'000);
    peer.say(frame(FrameType::cancel, kOpener, stream_of(2), ""));
    CHECK(peer.connection->budget_in_use() == 0);
  }
}

Task<void> read_later(RawPeer& peer, size_t& got) {
  auto stream = co_await peer.connection->open(kFlood);
  REQUIRE(stream.has_value());
  auto slept = co_await peer.clock.sleep(1s);
  if (!slept) co_return;
  for (;;) {
    auto message = co_await stream->recv();
    if (!message || !*message) co_return;
    got += (*message)->size();
  }
}

TEST_CASE("messages that lie unread after their call keep the budget until they are taken") {
  RawPeer peer(Side::connecting);
  size_t got = 0;
  Scope reader{Scope::Root{}};
  reader.spawn(read_later(peer, got));
  peer.clock.advance(0ms);
  const uint32_t stream = peer.hear().at(0).stream;
  peer.say(frame(FrameType::message, kLarge, stream, u64(200'000)));
  peer.say(frame(FrameType::data, 0, stream, std::string(200'000, 'd')));
  peer.say(frame(FrameType::end, 0, stream, ""));
  CHECK(peer.connection->calls_in_flight() == 0);
  CHECK(peer.connection->budget_in_use() == 200'000);
  SUBCASE("by their reader") {
    peer.clock.advance(1s);
    CHECK(got == 200'000);
  }
  SUBCASE("or dropped") {
    reader.cancel();
    peer.clock.advance(0ms);
  }
  CHECK(peer.connection->budget_in_use() == 0);
}

TEST_CASE("unread messages may outlive their connection") {
  RawPeer peer(Side::connecting);
  size_t got = 0;
  peer.calls.spawn(read_later(peer, got));
  peer.clock.advance(0ms);
  const uint32_t stream = peer.hear().at(0).stream;
  peer.say(frame(FrameType::message, kLarge, stream, u64(200'000)));
  peer.say(frame(FrameType::data, 0, stream, std::string(200'000, 'd')));
  peer.lose();
  peer.connection.reset();
  peer.clock.advance(1s);
  CHECK(got == 200'000);
}

TEST_CASE("a window smaller than what can be told is raised on both sides") {
  TestPeers peers({.stream_window = 10, .max_message = 10});
  CHECK(peers.call_now(kEcho, std::string(16'000, 'x')).size() == 16'000);
  CHECK(peers.server->limits().stream_window == kSmallestWindow);
}

TEST_CASE("a slot that is used again never means the same call, nor the connection itself") {
  RawPeer peer(Side::connecting);
  uint32_t before = 0;
  bool same = false;
  for (int i = 0; i < 65'600; ++i) {
    peer.call(kEcho, "");
    const uint32_t stream = peer.hear().at(0).stream;
    same = same || stream == before || stream >> 16 == 0;
    before = stream;
    peer.say(frame(FrameType::end, kMessage, stream, ""));
  }
  CHECK(!same);
  CHECK(peer.log.size() == 65'600);
}

TEST_CASE("large messages take turns, with each other and with small ones") {
  TestPeers peers({.receive_budget = 256_MiB, .handling_budget = 256_MiB});
  peers.call(kEcho, std::string(30'000'000, 'l'));
  peers.call(kEcho, std::string(1'000'000, 'm'));
  peers.call(kEcho, "s");
  peers.clock.advance(0ms);
  REQUIRE(peers.log.size() == 3);
  CHECK(peers.log[0].size() == 1);
  CHECK(peers.log[1].size() == 1'000'000);
  CHECK(peers.log[2].size() == 30'000'000);
}

}  // namespace
}  // namespace tutti::wire
