#include "wire/incoming_call.h"

#include "wire/raw_peer.h"

namespace tutti::wire {
namespace {

constexpr uint8_t kOpener = FrameFlags::opener;

TEST_CASE("a call that was never started does not end its connection before the others") {
  RawPeer peer(Side::accepting);
  peer.say(unary(kStubborn.id, stream_of(0), "x"));
  peer.say(open_call(kEcho.id, stream_of(1), 0, {}, 5s));
  CHECK(peer.connection->calls_in_flight() == 2);
  peer.lose();
  CHECK(peer.connection->calls_in_flight() == 1);
  peer.clock.advance(6s);
  CHECK(peer.service.cancelled == 1);
  CHECK(peer.ended.empty());
  peer.clock.advance(5s);
  CHECK(!peer.ended.empty());
}

TEST_CASE("a call that was never started ends at its deadline or when it is cancelled") {
  RawPeer peer(Side::accepting);
  peer.say(open_call(kEcho.id, stream_of(0), 0, {}, 5s));
  SUBCASE("deadline") { peer.clock.advance(5s); }
  SUBCASE("cancel") { peer.say(frame(FrameType::cancel, kOpener, stream_of(0), "")); }
  const auto said = peer.hear();
  REQUIRE(said.size() == 1);
  CHECK(said[0].type == FrameType::failure);
  CHECK(peer.connection->calls_in_flight() == 0);
  CHECK(peer.service.started == 0);
  CHECK(peer.ended.empty());
}

TEST_CASE("a unary call of no message or of several is refused") {
  for (const uint8_t flags : {FrameFlags::last, FrameFlags::message}) {
    RawPeer peer(Side::accepting);
    peer.say(open_call(kEcho.id, stream_of(0), flags));
    const auto said = peer.hear();
    REQUIRE(said.size() == 1);
    CHECK(said[0].type == FrameType::failure);
    CHECK(has(said[0].payload, "test.echo needs a request of one message"));
    CHECK(peer.connection->calls_in_flight() == 0);
    CHECK(peer.service.started == 0);
  }
}

TEST_CASE("large requests count until their handlers return; more of them wait, others do not") {
  TestPeers peers({.handling_budget = 1'000'000});
  const std::string padding(600'000, ' ');
  for (int i = 0; i < 3; ++i) peers.call(kSleep, "100" + padding);
  peers.clock.advance(50ms);
  CHECK(peers.at_server.started == 1);
  CHECK(peers.server->requests_in_use() == 600'003);
  CHECK(peers.call_now(kEcho, "small ones go on") == "small ones go on");
  peers.clock.advance(100ms);
  CHECK(peers.at_server.started == 3);  // an echo and the second
  peers.clock.advance(200ms);
  CHECK(peers.log.size() == 3);
  CHECK(peers.server->requests_in_use() == 0);
  CHECK(peers.server->replies_in_use() == 0);
}

TEST_CASE("a request larger than the whole budget is handled, alone") {
  TestPeers peers({.handling_budget = 100'000});
  CHECK(peers.call_now(kEcho, std::string(3'000'000, 'x')).size() == 3'000'000);
}

TEST_CASE("a handler of a large request can call back with it over the same connection") {
  TestPeers peers({.receive_budget = 1'000'000, .handling_budget = 1'000'000});
  const std::string request = "1" + std::string(900'000, ' ');
  for (int i = 0; i < 4; ++i) peers.call(kNested, request);
  peers.clock.advance(1s);
  CHECK(peers.log == std::vector<std::string>(4, request));
}

TEST_CASE("while too many large replies wait for credit, no further call is started") {
  RawPeer peer(Side::accepting, {.handling_budget = 1'000'000});
  for (uint16_t slot = 0; slot < 4; ++slot) {
    peer.say(unary(kGrow.id, stream_of(slot), "600000"));
  }
  CHECK(peer.service.started == 2);
  CHECK(peer.connection->replies_in_use() == 1'200'000);
  SUBCASE("until one is taken") {
    peer.say(frame(FrameType::credit, kOpener, stream_of(0), u64(600'000)));
    CHECK(peer.service.started == 4);
  }
  SUBCASE("until one is cancelled") {
    peer.say(frame(FrameType::cancel, kOpener, stream_of(1), ""));
    CHECK(peer.service.started == 4);
  }
  SUBCASE("unless it is cancelled itself") {
    peer.say(frame(FrameType::cancel, kOpener, stream_of(2), ""));
    CHECK(peer.connection->calls_in_flight() == 3);
    peer.say(frame(FrameType::credit, kOpener, stream_of(0), u64(600'000)));
    CHECK(peer.service.started == 3);
    CHECK(peer.connection->calls_in_flight() == 2);
  }
  SUBCASE("unless the connection is lost") {
    peer.lose();
    CHECK(peer.service.started == 2);
    CHECK(peer.connection->calls_in_flight() == 0);
  }
}

TEST_CASE("failures wait for room, too") {
  TestPeers peers({.max_queued = 20'000, .max_queued_control = 5'000}, 1'000);
  peers.to_client->hold();
  for (int i = 0; i < 100; ++i) peers.call(kFail, std::string(1000, 'f'));
  peers.clock.advance(1s);
  CHECK(peers.at_server.started == 100);
  CHECK(peers.server->queued_bytes() < 25'000);
  peers.to_client->release();
  peers.clock.advance(1s);
  CHECK(peers.codes == std::vector<std::optional<Code>>(100, Code::exists));
}

TEST_CASE("the end of a call that was given up is short, whatever its handler says") {
  RawPeer peer(Side::accepting);
  peer.say(open_call(kDeaf.id, stream_of(0)));
  peer.say(frame(FrameType::cancel, kOpener, stream_of(0), ""));
  const auto said = peer.hear();
  REQUIRE(said.size() == 1);
  CHECK(said[0].type == FrameType::failure);
  CHECK(said[0].payload.size() < 20);
}

}  // namespace
}  // namespace tutti::wire
