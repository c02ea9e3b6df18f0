// Who is refused, on which side, in which words, and what the other side is told.
#include <openssl/err.h>

#include "wire/openssl.h"
#include "wire/tls_test.h"

namespace tutti::wire {
namespace {

const Authority& other_authority(const std::string& cluster) {
  static const Authority office = Authority::create("office", kNow_s).value();
  static const Authority forged_lab = Authority::create("lab", kNow_s).value();
  return cluster == "office" ? office : forged_lab;
}

// A client that is refused by the server learns it when it first reads.
Error client_is_told(SealBench& bench) {
  REQUIRE(bench.client_result->has_value());
  auto read = bench.client_reads();
  REQUIRE(!read);
  CHECK(read.error().code() == Code::denied);
  return read.error();
}

Error server_refuses(SealBench& bench) {
  REQUIRE(!bench.server_result->has_value());
  CHECK(bench.server_result->error().code() == Code::denied);
  return bench.server_result->error();
}

void meet(SealBench& bench, std::shared_ptr<const TlsContext> client, Expectation of_server) {
  bench.client = bench.tls(std::move(client), {.side = Side::connecting});
  bench.server =
      bench.tls(head_context(), {.side = Side::accepting, .expected = std::move(of_server)});
  bench.shake_hands();
}

TEST_CASE("an expired client is refused and told since when and how to renew") {
  SealBench bench;
  const Person late{.issued_s = kNow_s - 33 * kDay_s};
  meet(bench, context_of(lab_authority(), late), {});
  const Error refusal = server_refuses(bench);
  CHECK(says(refusal, "certificate of agent node3 expired 3 days ago on 2027-01-12 08:00:00 UTC"));
  CHECK(says(refusal, "get a new agent-node3.pem from the host"));
  const Error told = client_is_told(bench);
  CHECK(says(told,
             "the other side refused us: our certificate (agent node3 of cluster lab) expired"));
  CHECK(says(told, "get a new agent-node3.pem from the host"));
}

TEST_CASE("a client whose certificate is not valid yet is pointed to the clocks") {
  SealBench bench;
  const Person early{.issued_s = kNow_s + kDay_s};
  meet(bench, context_of(lab_authority(), early), {});
  CHECK(says(server_refuses(bench), "begins only in 23 hours on 2027-01-16 07:00:00 UTC"));
  CHECK(says(client_is_told(bench), "compare `date -u` on both hosts"));
}

TEST_CASE("a certificate of a moment ago is accepted by a host whose clock is behind") {
  SealBench bench;
  const Person ahead{.issued_s = kNow_s + kClockSkew_s / 2};
  meet(bench, context_of(lab_authority(), ahead), {});
  CHECK(bench.server_result->has_value());
}

TEST_CASE("a certificate holds until its last second and no longer") {
  for (const int64_t age : {99, 100}) {
    SealBench bench;
    const Person person{.issued_s = kNow_s - age, .lifetime_s = 100};
    meet(bench, context_of(lab_authority(), person), {});
    CHECK(bench.server_result->has_value() == (age < 100));
  }
}

TEST_CASE("a client of another cluster is refused with both names") {
  SealBench bench;
  bench.client = bench.tls(context_of(other_authority("office"), {}), {.side = Side::connecting});
  bench.server = bench.tls(head_context(), {.side = Side::accepting});
  bench.shake_hands();
  // The client looks first, since the server shows its certificate first.
  REQUIRE(!bench.client_result->has_value());
  const Error& refusal = bench.client_result->error();
  CHECK(refusal.code() == Code::denied);
  CHECK(says(refusal, "the other side is the head of cluster lab, we are agent of cluster office"));
  CHECK(says(server_refuses(bench), "refused us: its authority did not sign our certificate"));
}

TEST_CASE("an authority of the same name that somebody made is not ours") {
  SealBench bench;
  bench.client = bench.tls(context_of(other_authority("lab"), {}), {.side = Side::connecting});
  bench.server = bench.tls(head_context(), {.side = Side::accepting});
  bench.shake_hands();
  REQUIRE(!bench.client_result->has_value());
  CHECK(says(bench.client_result->error(), "not our authority signed that"));
  CHECK(!bench.server_result->has_value());
}

TEST_CASE("a worker may not call what serves agents only") {
  SealBench bench;
  meet(bench, context_of(lab_authority(), {Role::worker, "job7:3"}), {.roles = {Role::agent}});
  CHECK(says(server_refuses(bench), "worker job7:3 may not call the head; it serves agent"));
  CHECK(says(client_is_told(bench), "it does not take calls from a worker"));
}

TEST_CASE("a client does not talk to a server of another role") {
  SealBench bench;
  bench.client =
      bench.tls(agent_context(), {.side = Side::connecting, .expected = {.roles = {Role::head}}});
  bench.server =
      bench.tls(context_of(lab_authority(), {Role::worker, "job7:3"}), {.side = Side::accepting});
  bench.shake_hands();
  REQUIRE(!bench.client_result->has_value());
  CHECK(says(bench.client_result->error(), "the other side is worker job7:3, not head"));
  CHECK(says(server_refuses(bench), "it does not take calls from a worker"));
}

TEST_CASE("when the authority itself has expired, nobody is sent to the clocks") {
  const int64_t long_ago_s = kNow_s - kAuthorityLifetime_s - kDay_s;
  const Authority old = Authority::create("lab", long_ago_s).value();
  const int64_t issued_s = kNow_s - 2 * kDay_s;
  SealBench bench;
  bench.client = bench.tls(context_of(old, {.issued_s = issued_s}), {.side = Side::connecting});
  bench.server =
      bench.tls(context_of(old, {Role::head, "head", issued_s}), {.side = Side::accepting});
  bench.shake_hands();
  REQUIRE(!bench.client_result->has_value());
  CHECK(says(bench.client_result->error(), "our cluster's authority itself has expired"));
  CHECK(says(server_refuses(bench), "finds our certificate (the head of cluster lab) unfit"));
}

TEST_CASE("an agent that takes another agent's place is found out by its name") {
  SealBench bench;
  const Expectation node4{.roles = {Role::agent}, .name = "node4"};
  bench.client = bench.tls(head_context(), {.side = Side::connecting, .expected = node4});
  bench.server = bench.tls(agent_context(), {.side = Side::accepting});
  bench.shake_hands();
  REQUIRE(!bench.client_result->has_value());
  CHECK(says(bench.client_result->error(),
             "expected agent node4 at the other end, but its "
             "certificate is of agent node3"));
  CHECK(says(server_refuses(bench), "it expected someone else than agent node3"));
}

// A client as anybody could write it, with whatever it has, speaking through plain memory.
class Stranger {
 public:
  explicit Stranger(int version) : context_(SSL_CTX_new(TLS_method())) {
    SSL_CTX_set_min_proto_version(context_.get(), version);
    SSL_CTX_set_max_proto_version(context_.get(), version);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl_.get());
  }
  // Takes what arrived and gives what it answers.
  std::string step(const std::string& arrived) {
    BIO_write(SSL_get_rbio(ssl_.get()), arrived.data(), static_cast<int>(arrived.size()));
    SSL_do_handshake(ssl_.get());
    ERR_clear_error();
    std::string said = bio_text(*SSL_get_wbio(ssl_.get()));
    static_cast<void>(BIO_reset(SSL_get_wbio(ssl_.get())));
    return said;
  }

 private:
  SslContextPointer context_;
  SslPointer ssl_;
};

// Lets the stranger and our server talk; gives what the server says of it.
Error meet_stranger(int version) {
  SealBench bench;
  bench.server = bench.tls(head_context(), {.side = Side::accepting});
  bench.root.spawn(
      SealBench::shake(bench, *bench.server, bench.streams.second, bench.server_result, 1s));
  Stranger stranger(version);
  for (int turns = 0; turns < 8 && !bench.server_result; ++turns) {
    const std::string arrived = std::exchange(bench.streams.first->incoming().bytes, {});
    bench.root.spawn([](FaultyStream& stream, std::string said) -> Task<void> {
      const Bytes out = as_bytes(said);
      if (said.empty()) co_return;
      auto written = co_await stream.write(out);
      static_cast<void>(written);
    }(*bench.streams.first, stranger.step(arrived)));
    bench.executor.run_ready();
  }
  bench.streams.first.reset();
  bench.clock.advance(2s);
  REQUIRE(bench.server_result.has_value());
  REQUIRE(!bench.server_result->has_value());
  return bench.server_result->error();
}

TEST_CASE("a client without a certificate is refused and told where to get one") {
  const Error refusal = meet_stranger(TLS1_3_VERSION);
  CHECK(refusal.code() == Code::denied);
  CHECK(says(refusal, "has no certificate; give it one of cluster lab, from the host"));
}

TEST_CASE("TLS older than 1.3 is not spoken") {
  const Error refusal = meet_stranger(TLS1_2_VERSION);
  CHECK(refusal.code() == Code::unsupported);
  CHECK(says(refusal, "older than 1.3"));
}

}  // namespace
}  // namespace tutti::wire
