// Connections over TLS: how they end, what damage does to them, what they hold when nothing
// happens.
#include "wire/authority.h"
#include "wire/testing.h"
#include "wire/tls.h"

namespace tutti::wire {
namespace {

constexpr int64_t kNow_s = 1'800'000'000;

// What the seals read the date from.
class FixedDate final : public Clock {
 public:
  Instant now() const override { return {}; }
  int64_t unix_ns() const override { return kNow_s * 1'000'000'000; }

 private:
  void do_arm(Timer&, Instant) override { TUTTI_ASSERT(false, "seals arm no timers"); }
  void do_disarm(Timer&) override {}
};

std::unique_ptr<Seal> tls_seal(Side side) {
  static const FixedDate date;
  static const Authority authority = Authority::create("c", kNow_s).value();
  const bool connecting = side == Side::connecting;
  const IssueOptions who{connecting ? Role::user : Role::agent, connecting ? "ann" : "node7"};
  const Certificate certificate = authority.issue(who, kNow_s).value();
  return make_tls_seal(TlsContext::make(certificate).value(), date, {.side = side});
}

struct TlsPeers : TestPeers {
  explicit TlsPeers(Limits limits = {}) : TestPeers(limits, 64 * 1024, tls_seal) {}
};

TEST_CASE("calls of any size travel over TLS") {
  TlsPeers peers;
  for (const size_t size : {0UL, 1UL, 20'000UL, 3'000'000UL})
    CHECK(peers.call_now(kEcho, std::string(size, 'x')).size() == size);
}

TEST_CASE("over TLS, whoever closes first, both say goodbye and end well") {
  for (const bool client_first : {false, true}) {
    TlsPeers peers;
    peers.call(kSleep, "50");
    peers.clock.advance(1ms);
    (client_first ? peers.client : peers.server)->close(peers.clock.now() + 1s);
    peers.clock.advance(100ms);
    CHECK(peers.log == std::vector<std::string>{"50"});
    CHECK(peers.client_end == "well");
    CHECK(peers.server_end == "well");
  }
}

TEST_CASE("over TLS, a request that crosses the goaway is refused unstarted") {
  TlsPeers peers;
  peers.to_client->hold();
  peers.server->close(peers.clock.now() + 1s, "upgrade");
  peers.call(kSleep, "5");
  peers.clock.advance(0ms);
  peers.to_client->release();
  peers.clock.advance(10ms);
  CHECK(has(peers.log.at(0), "not started: this side is closing"));
  CHECK(peers.client_end == "well");
  CHECK(peers.server_end == "well");
}

TEST_CASE("over TLS, an end of the stream without a goodbye is an error") {
  TlsPeers peers;
  peers.call_now(kEcho, "x");
  peers.to_server->close();
  peers.clock.advance(0ms);
  CHECK(has(peers.server_end, "ended without a goodbye"));
}

TEST_CASE("over TLS, damaged bytes end the connection and are answered by an alert") {
  TlsPeers peers;
  peers.call(kSleep, "1000");
  peers.clock.advance(1ms);
  peers.to_server->hold();
  peers.call(kEcho, "to be damaged");
  peers.clock.advance(0ms);
  peers.to_server->bytes().at(10) ^= 1;
  peers.to_server->release();
  peers.clock.advance(0ms);
  CHECK(has(peers.server_end, "do not pass TLS's checks"));
  CHECK(has(peers.client_end, "the other side gave up: TLS alert 20 (bad record mac)"));
  CHECK(peers.codes == std::vector<std::optional<Code>>(2, Code::unavailable));
}

TEST_CASE("an idle connection gives back the memory of busier times") {
  TlsPeers peers;
  for (int i = 0; i < 100; ++i) peers.call_now(kEcho, std::string(15'000, 'x'));
  peers.call_now(kEcho, std::string(3'000'000, 'x'));
  CHECK(peers.client->buffer_bytes() > 16'384);
  CHECK(peers.server->buffer_bytes() > 16'384);
  peers.clock.advance(1min);
  CHECK(peers.client->buffer_bytes() <= 8'192);
  CHECK(peers.server->buffer_bytes() <= 8'192);
  CHECK(peers.call_now(kEcho, "and goes on") == "and goes on");
}

TEST_CASE("an idle connection without TLS does too") {
  TestPeers peers;
  for (int i = 0; i < 100; ++i) peers.call_now(kEcho, std::string(15'000, 'x'));
  peers.clock.advance(1min);
  CHECK(peers.client->buffer_bytes() <= 8'192);
  CHECK(peers.server->buffer_bytes() <= 8'192);
}

}  // namespace
}  // namespace tutti::wire
