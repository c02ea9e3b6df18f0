#include "wire/tls_test.h"

#include <algorithm>
#include <array>
#include <vector>

namespace tutti::wire {
namespace {

// What each side got, after saying `text` from one to the other.
Result<std::string> carry(Seal& from, Seal& to, std::string_view text) {
  std::string travelled;
  std::string plain;
  const Bytes part = as_bytes(text);
  TRY_DO(from.seal({&part, 1}, travelled));
  TRY_DO(to.open(as_bytes(travelled), plain));
  return plain;
}

TEST_CASE("both sides learn who the other is and understand each other") {
  SealBench bench;
  bench.make_tls_pair();
  bench.shake_hands();
  CHECK(bench.client_result->value() == Identity{"lab", Role::head, "head"});
  CHECK(bench.server_result->value() == Identity{"lab", Role::agent, "node3"});
  CHECK(carry(*bench.client, *bench.server, "hello").value() == "hello");
  CHECK(carry(*bench.server, *bench.client, "good day").value() == "good day");
  CHECK(bench.client->transforms());
}

TEST_CASE("what travels shows nothing of what was said") {
  SealBench bench;
  bench.make_tls_pair();
  bench.shake_hands();
  const std::string secret = "the weights of the model, in plain";
  const Bytes part = as_bytes(secret);
  std::string travelled;
  REQUIRE(bench.client->seal({&part, 1}, travelled));
  CHECK(travelled.find("weights") == std::string::npos);
}

TEST_CASE("bytes that came with the end of the handshake are given by the first open") {
  SealBench bench;
  bench.make_tls_pair();
  bench.root.spawn(
      SealBench::shake(bench, *bench.client, bench.streams.first, bench.client_result, 10s));
  bench.executor.run_ready();
  const std::string hello = std::exchange(bench.streams.first->outgoing().bytes, {});
  // The server answers; the client finishes and speaks at once; the server sees both together.
  bench.streams.first->outgoing().bytes = hello;
  bench.root.spawn(
      SealBench::shake(bench, *bench.server, bench.streams.second, bench.server_result, 10s));
  const Bytes part = as_bytes("early bird");
  for (int turns = 0; !bench.client_result && turns < 100; ++turns) bench.executor.run_round();
  REQUIRE(bench.client_result.has_value());
  REQUIRE(!bench.server_result.has_value());
  std::string travelled;
  REQUIRE(bench.client->seal({&part, 1}, travelled));
  bench.streams.first->outgoing().bytes += travelled;
  bench.clock.advance(11s);
  REQUIRE(bench.server_result.has_value());
  REQUIRE(bench.server_result->has_value());
  std::string plain;
  const std::string rest = bench.streams.first->outgoing().bytes;
  REQUIRE(bench.server->open(as_bytes(rest), plain));
  CHECK(plain == "early bird");
}

std::string pattern(size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 2654435761U + seed) >> 13);
  return bytes;
}

Task<void> send_all(Seal& seal, Stream& stream, const std::string& bytes) {
  std::string travelled;
  Bytes rest = as_bytes(bytes);
  while (!rest.empty()) {
    const Bytes small = rest.first(std::min<size_t>(7, rest.size()));
    const Bytes large =
        rest.subspan(small.size(), std::min<size_t>(100'000, rest.size() - small.size()));
    rest = rest.subspan(small.size() + large.size());
    const std::array<Bytes, 2> parts = {small, large};
    travelled.clear();
    CHECK(seal.seal(parts, travelled).has_value());
    const Bytes out = as_bytes(travelled);
    auto written = co_await stream.write(out);
    CHECK(written.has_value());
  }
}

Task<void> receive_all(Seal& seal, Stream& stream, size_t size, std::string& got) {
  std::vector<std::byte> buffer(5000);  // no multiple of a record
  const MutableBytes into = buffer;
  while (got.size() < size) {
    auto count = co_await stream.read(into);
    CHECK(count.has_value());
    if (!count || *count == 0) co_return;
    auto opened = seal.open(Bytes(buffer).first(*count), got);
    CHECK(opened.has_value());
    if (!opened) co_return;
  }
}

TEST_CASE("large transfers go both ways at once, whatever way they are cut") {
  SealBench bench;
  bench.make_tls_pair();
  bench.shake_hands();
  const std::string there = pattern(3'000'017, 1);
  const std::string back = pattern(2'000'003, 2);
  std::string got_there;
  std::string got_back;
  bench.root.spawn(send_all(*bench.client, *bench.streams.first, there));
  bench.root.spawn(receive_all(*bench.client, *bench.streams.first, back.size(), got_back));
  bench.root.spawn(send_all(*bench.server, *bench.streams.second, back));
  bench.root.spawn(receive_all(*bench.server, *bench.streams.second, there.size(), got_there));
  bench.executor.run_ready();
  CHECK(got_there == there);
  CHECK(got_back == back);
}

TEST_CASE("parts of every size around a record's arrive whole and in order") {
  SealBench bench;
  bench.make_tls_pair();
  bench.shake_hands();
  for (const size_t size : {0UL, 1UL, 4095UL, 4096UL, 16383UL, 16384UL, 16385UL, 40000UL}) {
    const std::string text = pattern(size, 3);
    const std::array<Bytes, 4> parts = {as_bytes("head"), as_bytes(text), as_bytes(""),
                                        as_bytes("tail")};
    std::string travelled;
    std::string plain;
    REQUIRE(bench.client->seal(parts, travelled));
    REQUIRE(bench.server->open(as_bytes(travelled), plain));
    CHECK(plain == "head" + text + "tail");
  }
}

TEST_CASE("records may arrive byte by byte") {
  SealBench bench;
  bench.make_tls_pair();
  bench.shake_hands();
  const std::string text = pattern(20'000, 4);
  const Bytes part = as_bytes(text);
  std::string travelled;
  std::string plain;
  REQUIRE(bench.client->seal({&part, 1}, travelled));
  for (size_t i = 0; i < travelled.size(); ++i)
    REQUIRE(bench.server->open(as_bytes(travelled).subspan(i, 1), plain));
  CHECK(plain == text);
}

TEST_CASE("keys change under way and nobody notices") {
  SealBench bench;
  bench.client = bench.tls(agent_context(), {.side = Side::connecting, .records_per_key = 3});
  bench.server = bench.tls(head_context(), {.side = Side::accepting, .records_per_key = 2});
  bench.shake_hands();
  for (int i = 0; i < 50; ++i) {
    CHECK(carry(*bench.client, *bench.server, "ping").value() == "ping");
    CHECK(carry(*bench.server, *bench.client, "pong").value() == "pong");
  }
}

TEST_CASE("a closed seal tells the other side and takes nothing more") {
  SealBench bench;
  bench.make_tls_pair();
  bench.shake_hands();
  std::string goodbye;
  std::string plain;
  bench.client->close(goodbye);
  CHECK(!goodbye.empty());
  auto opened = bench.server->open(as_bytes(goodbye), plain);
  CHECK(opened.error().code() == Code::unavailable);
  CHECK(says(opened.error(), "closed the connection"));
  CHECK(carry(*bench.client, *bench.server, "more").error().code() == Code::unavailable);
}

TEST_CASE("a damaged record is refused, for ever, and the other side is told by an alert") {
  SealBench bench;
  bench.make_tls_pair();
  bench.shake_hands();
  const Bytes part = as_bytes("pay 100 to node3");
  std::string travelled;
  std::string plain;
  REQUIRE(bench.client->seal({&part, 1}, travelled));
  travelled.back() ^= 1;
  auto opened = bench.server->open(as_bytes(travelled), plain);
  REQUIRE(!opened);
  CHECK(opened.error().code() == Code::corrupt);
  CHECK(plain.empty());
  CHECK(!bench.server->open(as_bytes(travelled), plain));
  CHECK(!bench.server->seal({&part, 1}, plain));

  std::string alert;
  bench.server->close(alert);
  auto told = bench.client->open(as_bytes(alert), plain);
  REQUIRE(!told);
  CHECK(told.error().code() == Code::corrupt);
  CHECK(says(told.error(), "bad record mac"));
}

TEST_CASE("a record that is repeated, left out or swapped is refused") {
  for (const int trick : {0, 1, 2}) {
    SealBench bench;
    bench.make_tls_pair();
    bench.shake_hands();
    std::array<std::string, 2> records;
    for (std::string& record : records) {
      const Bytes part = as_bytes("one");
      REQUIRE(bench.client->seal({&part, 1}, record));
    }
    std::string travelled = records[1];                   // left out
    if (trick == 1) travelled = records[0] + records[0];  // repeated
    if (trick == 2) travelled = records[1] + records[0];  // swapped
    std::string plain;
    auto opened = bench.server->open(as_bytes(travelled), plain);
    REQUIRE(!opened);
    CHECK(opened.error().code() == Code::corrupt);
  }
}

TEST_CASE("a flipped bit anywhere in a record is refused") {
  const Bytes part = as_bytes("a short message");
  size_t size = 1;
  for (size_t at = 0; at < size; ++at) {
    SealBench bench;
    bench.make_tls_pair();
    bench.shake_hands();
    std::string travelled;
    std::string plain;
    REQUIRE(bench.client->seal({&part, 1}, travelled));
    size = travelled.size();
    travelled[at] ^= static_cast<char>(1 << (at % 8));
    auto opened = bench.server->open(as_bytes(travelled), plain);
    // A longer length only makes it wait for bytes that never pass.
    if (!opened) CHECK(opened.error().code() == Code::corrupt);
    CHECK(plain.empty());
  }
}

}  // namespace
}  // namespace tutti::wire
