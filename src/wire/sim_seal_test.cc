#include "wire/sim_seal.h"

#include "wire/tls_test.h"
#include "wire/unix_seal.h"

namespace tutti::wire {
namespace {

Claim claim_of(Role role, const std::string& name) {
  return {{"lab", role, name}, "a1b2", kNow_s - 100, kNow_s + 100};
}

// Lets the two meet in simulation and gives what the server says of the client.
Result<Identity> meet(SealBench& bench, const Claim& client, const Expectation& of_client = {},
                      const Expectation& of_server = {}) {
  bench.client =
      make_sim_seal(bench.dated, {.side = Side::connecting, .ours = client, .expected = of_server});
  bench.server = make_sim_seal(
      bench.dated,
      {.side = Side::accepting, .ours = claim_of(Role::head, "head"), .expected = of_client});
  bench.shake_hands();
  return *bench.server_result;
}

TEST_CASE("in simulation both sides learn who the other is, and nothing is left over") {
  SealBench bench;
  CHECK(meet(bench, claim_of(Role::agent, "node3")).value() ==
        Identity{"lab", Role::agent, "node3"});
  CHECK(bench.client_result->value() == Identity{"lab", Role::head, "head"});
  CHECK(bench.streams.first->incoming().bytes.empty());
  CHECK(bench.streams.first->outgoing().bytes.empty());
  CHECK(!bench.client->transforms());
}

TEST_CASE("in simulation the same refusals come in the same words, on both sides") {
  Claim expired = claim_of(Role::agent, "node3");
  expired.not_after_unix_s = kNow_s - 3 * 86'400;
  Claim stranger = claim_of(Role::agent, "node3");
  stranger.identity.cluster = "office";
  Claim forger = claim_of(Role::agent, "node3");
  forger.authority = "ffff";
  struct Case {
    Claim claim;
    const char* server_says;
    const char* client_says;
  };
  for (const Case& one :
       {Case{expired, "expired 3 days ago on", "refused us: our certificate"},
        Case{stranger, "agent node3 of cluster office, we are", "did not sign"},
        Case{forger, "not our authority signed that", "did not sign"},
        Case{claim_of(Role::worker, "w"), "worker w may not call the head",
             "does not take calls from a worker"},
        Case{claim_of(Role::agent, "node4"), "expected agent node3", "expected someone else"}}) {
    SealBench bench;
    const Expectation node3{.roles = {Role::agent}, .name = "node3"};
    const auto refused = meet(bench, one.claim, node3);
    REQUIRE(!refused);
    CHECK(refused.error().code() == Code::denied);
    CHECK(says(refused.error(), one.server_says));
    REQUIRE(!bench.client_result->has_value());
    CHECK(bench.client_result->error().code() == Code::denied);
    CHECK(says(bench.client_result->error(), one.client_says));
  }
}

TEST_CASE("in simulation a client refuses a server too, and the server hears of it") {
  SealBench bench;
  const auto refused = meet(bench, claim_of(Role::agent, "node3"), {}, {.roles = {Role::agent}});
  REQUIRE(!refused);
  CHECK(says(refused.error(), "does not take calls from a head"));
  CHECK(says(bench.client_result->error(), "the other side is the head, not agent"));
}

TEST_CASE("each side of a simulated handshake is charged once") {
  SealBench bench;
  int charges = 0;
  const auto charge = [&charges] { ++charges; };
  bench.client = make_sim_seal(
      bench.dated,
      {.side = Side::connecting, .ours = claim_of(Role::agent, "a"), .charge = charge});
  bench.server = make_sim_seal(
      bench.dated, {.side = Side::accepting, .ours = claim_of(Role::head, "h"), .charge = charge});
  bench.shake_hands();
  CHECK(charges == 2);
}

TEST_CASE("a simulated handshake cut at any byte ends with an error") {
  SealBench whole;
  REQUIRE(meet(whole, claim_of(Role::agent, "node3")));
  const size_t length = whole.streams.first->outgoing().passed;
  CHECK(length > 50);
  for (size_t cut = 0; cut < length; ++cut) {
    SealBench bench;
    bench.streams.first->outgoing().cut_after = cut;
    const auto result = meet(bench, claim_of(Role::agent, "node3"));
    REQUIRE(!result);
    CHECK(result.error().code() == Code::unavailable);
  }
}

TEST_CASE("a claim survives the way into text and back, and nothing else is a claim") {
  const Claim claim = claim_of(Role::agent, "node3");
  const std::string text = format_claim(claim);
  const Claim read = parse_claim(text).value();
  CHECK(read.identity == claim.identity);
  CHECK(read.authority == claim.authority);
  CHECK(read.not_before_unix_s == claim.not_before_unix_s);
  CHECK(read.not_after_unix_s == claim.not_after_unix_s);
  CHECK(!parse_claim(text + "x"));
  CHECK(!parse_claim(""));
  CHECK(!parse_claim("claim 2\n"));
  CHECK(!parse_claim(text.substr(0, text.size() - 13)));
  CHECK(!parse_claim("claim 1\ntutti://lab/agent/n\na1\n-1\n5\n"));
  CHECK(!parse_claim("claim 1\ntutti://lab/agent/n\na1\n1\n99999999999999999999\n"));
}

Result<Identity> meet_over_unix(uid_t own, uid_t peer, Side side) {
  SealBench bench;
  bench.streams.first->is_unix = true;
  bench.streams.first->credentials = {.pid = 77, .uid = peer, .gid = peer};
  bench.client = make_unix_seal(own, side);
  bench.root.spawn(
      SealBench::shake(bench, *bench.client, bench.streams.first, bench.client_result, 1s));
  bench.clock.advance(2s);
  return *bench.client_result;
}

TEST_CASE("a Unix socket lets in the same user and root, and names both when it refuses") {
  CHECK(meet_over_unix(1000, 1000, Side::accepting).value().name == "uid 1000");
  CHECK(meet_over_unix(1000, 0, Side::accepting).has_value());
  CHECK(meet_over_unix(0, 1000, Side::connecting).has_value());
  CHECK(!meet_over_unix(0, 1000, Side::accepting));
  const auto refused = meet_over_unix(1000, 1001, Side::accepting);
  REQUIRE(!refused);
  CHECK(refused.error().code() == Code::denied);
  CHECK(says(refused.error(), "(pid 77) runs as uid 1001, we run as uid 1000"));
}

TEST_CASE("a Unix seal on what is not a Unix socket is an error, not a pass") {
  SealBench bench;
  bench.client = make_unix_seal(0, Side::accepting);
  bench.root.spawn(
      SealBench::shake(bench, *bench.client, bench.streams.first, bench.client_result, 1s));
  bench.clock.advance(2s);
  CHECK(!bench.client_result->has_value());
}

}  // namespace
}  // namespace tutti::wire
