// Handshakes that are cut, damaged, stalled or were never TLS: each ends with an error in time.
#include <algorithm>
#include <set>

#include "wire/tls_test.h"

namespace tutti::wire {
namespace {

// How many bytes each side sends in an undisturbed handshake.
struct Lengths {
  size_t there;
  size_t back;
};
Lengths handshake_lengths() {
  SealBench bench;
  bench.make_tls_pair();
  bench.shake_hands();
  return {bench.streams.first->outgoing().passed, bench.streams.second->outgoing().passed};
}

// Signatures differ in length by a few bytes from run to run.
constexpr size_t kVariation = 8;

TEST_CASE("a handshake cut at any byte ends with an error on the side that was cut off") {
  const Lengths lengths = handshake_lengths();
  CHECK(lengths.there < 4096);
  CHECK(lengths.back < 4096);
  for (size_t cut = 0; cut + kVariation < lengths.there; ++cut) {
    SealBench bench;
    bench.make_tls_pair();
    bench.streams.first->outgoing().cut_after = cut;
    bench.shake_hands();
    REQUIRE(!bench.server_result->has_value());
    CHECK(bench.server_result->error().code() == Code::unavailable);
  }
  for (size_t cut = 0; cut + kVariation < lengths.back; ++cut) {
    SealBench bench;
    bench.make_tls_pair();
    bench.streams.second->outgoing().cut_after = cut;
    bench.shake_hands();
    REQUIRE(!bench.client_result->has_value());
    CHECK(bench.client_result->error().code() == Code::unavailable);
    CHECK(!bench.server_result->has_value());
  }
}

// Either somebody noticed, or it was a byte that TLS leaves unprotected (the version in the header
// of a record in plain) and the connection is as good as any.
void check_damage(SealBench& bench) {
  const std::set<Code> allowed = {Code::corrupt, Code::denied, Code::unsupported, Code::deadline,
                                  Code::unavailable};
  bool noticed = false;
  for (const auto& result : {*bench.client_result, *bench.server_result}) {
    if (result) continue;
    noticed = true;
    CHECK(allowed.contains(result.error().code()));
  }
  if (noticed) return;
  const Bytes part = as_bytes("still fine");
  std::string travelled;
  std::string plain;
  REQUIRE(bench.client->seal({&part, 1}, travelled));
  REQUIRE(bench.server->open(as_bytes(travelled), plain));
  CHECK(plain == "still fine");
}

TEST_CASE("a bit flipped anywhere in a handshake is noticed, or changes nothing") {
  const Lengths lengths = handshake_lengths();
  for (const bool there : {true, false}) {
    for (size_t at = 0; at < (there ? lengths.there : lengths.back); ++at) {
      SealBench bench;
      bench.make_tls_pair();
      FaultyPipe& pipe = (there ? bench.streams.first : bench.streams.second)->outgoing();
      pipe.flip_at = at;
      pipe.flip_bits = static_cast<unsigned char>(1 << (at % 8));
      bench.shake_hands();
      check_damage(bench);
    }
  }
}

// Says `text` to a server (or client) that expects TLS, then keeps the connection open or not.
Error first_words(Side side, std::string text, bool stay) {
  SealBench bench;
  const auto context = side == Side::accepting ? head_context() : agent_context();
  bench.server = bench.tls(context, {.side = side});
  bench.streams.first->outgoing().bytes = std::move(text);
  bench.streams.first->outgoing().ended = !stay;
  bench.root.spawn(
      SealBench::shake(bench, *bench.server, bench.streams.second, bench.server_result, 5s));
  bench.clock.advance(6s);
  REQUIRE(bench.server_result.has_value());
  REQUIRE(!bench.server_result->has_value());
  return bench.server_result->error();
}

TEST_CASE("a peer that says nothing, or never ends its handshake, runs into the deadline") {
  CHECK(first_words(Side::accepting, "", true).code() == Code::deadline);
  CHECK(first_words(Side::connecting, "", true).code() == Code::deadline);
  const std::string half_a_record("\x16\x03\x01\x02\x00\x01", 6);
  CHECK(first_words(Side::accepting, half_a_record, true).code() == Code::deadline);
}

TEST_CASE("a peer that leaves without a word is told apart from one that breaks off") {
  const Error silent = first_words(Side::accepting, "", false);
  CHECK(silent.code() == Code::unavailable);
  CHECK(says(silent, "without a word"));
  const Error broken = first_words(Side::accepting, std::string("\x16\x03\x01\x02", 4), false);
  CHECK(broken.code() == Code::unavailable);
  CHECK(says(broken, "4 bytes into the TLS handshake"));
}

TEST_CASE("plain bytes instead of TLS are recognised and nothing answers them") {
  const Error http = first_words(Side::accepting, "GET / HTTP/1.1\r\n\r\n", true);
  CHECK(http.code() == Code::denied);
  CHECK(says(http, "it begins with 'GET / HTTP/1.1..'; that is HTTP: did you mean"));
  const Error plain = first_words(Side::accepting, "TUTTI hello", true);
  CHECK(says(plain, "did you mean to connect to the unix: address?"));
  const Error ssh = first_words(Side::connecting, "SSH-2.0-OpenSSH_9.2\x1b[2J", true);
  CHECK(says(ssh, "'SSH-2.0-OpenSSH_'; did you mean another port?"));

  SealBench bench;
  bench.server = bench.tls(head_context(), {.side = Side::accepting});
  bench.streams.first->outgoing().bytes = "garbage";
  bench.root.spawn(
      SealBench::shake(bench, *bench.server, bench.streams.second, bench.server_result, 5s));
  bench.clock.advance(6s);
  CHECK(bench.streams.first->incoming().passed == 0);
}

TEST_CASE("a server with no cipher of ours is told apart from one that expected someone else") {
  const std::string handshake_failure("\x15\x03\x03\x00\x02\x02\x28", 7);
  const Error refusal = first_words(Side::connecting, handshake_failure, true);
  CHECK(refusal.code() == Code::unsupported);
  CHECK(says(refusal, "has no cipher of ours"));
}

TEST_CASE("a peer that pads its handshake without end is cut off") {
  std::string records;
  // Change-cipher-spec records are legal noise in TLS 1.3, so OpenSSL skips them.
  while (records.size() < 2 * kMaxHandshakeBytes)
    records += std::string("\x14\x03\x03\x00\x01\x01", 6);
  SealBench bench;
  bench.make_tls_pair();
  bench.root.spawn(
      SealBench::shake(bench, *bench.client, bench.streams.first, bench.client_result, 5s));
  bench.executor.run_ready();
  bench.streams.first->outgoing().bytes += records;
  bench.root.spawn(
      SealBench::shake(bench, *bench.server, bench.streams.second, bench.server_result, 5s));
  bench.clock.advance(6s);
  REQUIRE(bench.server_result.has_value());
  REQUIRE(!bench.server_result->has_value());
  CHECK(bench.server_result->error().code() != Code::deadline);
}

}  // namespace
}  // namespace tutti::wire
