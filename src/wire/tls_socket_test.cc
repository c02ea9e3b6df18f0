// Seals over real sockets: what memory cannot show, such as a reset that overtakes an alert.
#include <doctest/doctest.h>

#include "wire/authority.h"
#include "wire/tls.h"
#include "wire/unix_seal.h"
#include "world/real/network_fixture.h"
#include "world/real/temporary_folder_fixture.h"

namespace tutti::wire {
namespace {

constexpr Duration kAllowed = 60s;  // only a hang takes as long

struct Outcome {
  std::optional<Result<Identity>> server;
  std::optional<Result<Identity>> client;
  std::optional<Error> client_read;
  std::string answer;
};

std::shared_ptr<const TlsContext> context_of(const Authority& authority, Clock& clock, Role role) {
  const int64_t now_s = clock.unix_ns() / 1'000'000'000;
  return TlsContext::make(authority.issue({role, "somebody"}, now_s).value()).value();
}

// A server that answers one message with itself, then closes.
Task<Result<void>> serve(Seal& seal, std::unique_ptr<Stream> stream, Outcome& outcome) {
  auto identity = co_await seal.handshake(*stream);
  outcome.server = identity;
  if (!identity) co_return {};
  std::array<std::byte, 4096> buffer;
  const MutableBytes into = buffer;
  std::string plain;
  auto early = seal.open({}, plain);
  while (early && plain.empty()) {
    auto got = co_await stream->read(into);
    if (!got || *got == 0) co_return {};
    early = seal.open(Bytes(buffer).first(*got), plain);
  }
  std::string travelled;
  const Bytes part = as_bytes(plain);
  if (!seal.seal({&part, 1}, travelled)) co_return {};
  seal.close(travelled);
  const Bytes out = as_bytes(travelled);
  auto written = co_await stream->write(out);
  co_return written;
}

// A client that speaks as soon as it may and reads to the end.
Task<Result<void>> call(Seal& seal, std::unique_ptr<Stream> stream, Outcome& outcome) {
  auto identity = co_await seal.handshake(*stream);
  outcome.client = identity;
  if (!identity) co_return {};
  std::string travelled;
  const Bytes part = as_bytes("hello");
  CHECK(seal.seal({&part, 1}, travelled).has_value());
  const Bytes out = as_bytes(travelled);
  auto written = co_await stream->write(out);
  std::array<std::byte, 4096> buffer;
  const MutableBytes into = buffer;
  while (!outcome.client_read) {
    auto got = co_await stream->read(into);
    if (!got) outcome.client_read = got.error();
    if (!got || *got == 0) break;
    auto opened = seal.open(Bytes(buffer).first(*got), outcome.answer);
    if (!opened) outcome.client_read = opened.error();
  }
  co_return {};
}

Task<Result<void>> meet(Network& network, Address address, Seal& client, Seal& server,
                        Outcome& outcome) {
  Connection connection = co_await make_connection(network, address);
  Scope scope;
  scope.spawn(serve(server, std::move(connection.server), outcome));
  scope.spawn(call(client, std::move(connection.client), outcome));
  auto joined = co_await scope.join();
  co_return joined;
}

Outcome meet_over_tcp(Role caller, Roles served) {
  NetworkFixture fixture;
  Clock& clock = fixture.loop.clock();
  const int64_t now_s = clock.unix_ns() / 1'000'000'000;
  const Authority authority = Authority::create("lab", now_s).value();
  const auto client =
      make_tls_seal(context_of(authority, clock, caller), clock, {.side = Side::connecting});
  const auto server = make_tls_seal(context_of(authority, clock, Role::head), clock,
                                    {.side = Side::accepting, .expected = {.roles = served}});
  Outcome outcome;
  const Address anywhere = Address::tcp("127.0.0.1", 0);
  auto done = fixture.loop.run(with_deadline(
      clock, clock.now() + kAllowed, meet(fixture.network, anywhere, *client, *server, outcome)));
  CHECK_MESSAGE(done.has_value(), (done ? "" : done.error().text()));
  return outcome;
}

TEST_CASE("over TCP both sides are proven, speak and part") {
  const Outcome outcome = meet_over_tcp(Role::agent, {Role::agent});
  REQUIRE(outcome.server.has_value());
  CHECK(outcome.server->value() == Identity{"lab", Role::agent, "somebody"});
  CHECK(outcome.client->value() == Identity{"lab", Role::head, "somebody"});
  CHECK(outcome.answer == "hello");
  REQUIRE(outcome.client_read.has_value());
  CHECK(outcome.client_read->code() == Code::unavailable);
}

TEST_CASE("over TCP a client that is refused while it speaks still hears why") {
  for (int i = 0; i < 20; ++i) {
    const Outcome outcome = meet_over_tcp(Role::worker, {Role::agent});
    REQUIRE(outcome.server.has_value());
    CHECK(outcome.server->error().code() == Code::denied);
    REQUIRE(outcome.client_read.has_value());
    CHECK(outcome.client_read->code() == Code::denied);
    CHECK(outcome.client_read->text().find("calls from a worker") != std::string::npos);
  }
}

TEST_CASE("over a Unix socket the kernel says who is there") {
  NetworkFixture fixture;
  const TemporaryFolder folder;
  Clock& clock = fixture.loop.clock();
  const auto client = make_unix_seal(getuid(), Side::connecting);
  const auto server = make_unix_seal(getuid(), Side::accepting);
  Outcome outcome;
  const Address address = Address::unix_socket(folder.path + "/socket");
  auto done = fixture.loop.run(with_deadline(
      clock, clock.now() + kAllowed, meet(fixture.network, address, *client, *server, outcome)));
  CHECK(done.has_value());
  CHECK(outcome.server->value().name == fmt::format("uid {}", getuid()));
  CHECK(outcome.answer == "hello");
}

}  // namespace
}  // namespace tutti::wire
