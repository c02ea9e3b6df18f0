#include "world/real/fd_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "world/real/fd.h"
#include "world/real/network_fixture.h"
#include "world/real/random.h"
#include "world/real/temporary_folder_fixture.h"

namespace tutti {
namespace {

const Address kLoopback = Address::tcp("127.0.0.1", 0);

struct PairFixture : NetworkFixture {
  std::unique_ptr<Stream> a;
  std::unique_ptr<Stream> b;
  PairFixture() {
    auto pair = network.pair();
    REQUIRE(pair);
    a = std::move(pair->ours);
    auto adopted = network.adopt(std::move(pair->theirs));
    REQUIRE(adopted);
    b = std::move(*adopted);
  }
};

std::string random_text(size_t size) {
  RealRandom random;
  std::string text(size, '\0');
  random.fill(as_mutable_bytes(text));
  return text;
}

// Writes the text in writes of many parts, some of them empty.
Task<Result<void>> write_in_parts(Stream& stream, const std::string& text) {
  const Bytes all = as_bytes(text);
  size_t at = 0;
  for (size_t turn = 0; at < all.size(); ++turn) {
    std::vector<Bytes> parts;
    for (size_t i = 0; i < 200 && at < all.size(); ++i) {
      const size_t size = std::min((turn * 7919 + i * 104729) % 9000, all.size() - at);
      parts.push_back(all.subspan(at, size));
      at += size;
    }
    auto written = co_await stream.write(parts);
    if (!written) co_return written;
  }
  co_return stream.shutdown_write();
}

Task<void> read_and_compare(Stream& stream, const std::string& expected) {
  auto text = co_await read_text(stream, expected.size() + 1);
  CHECK(text.size() == expected.size());
  CHECK(text == expected);
}

Task<void> transfer_both_ways(Stream& a, Stream& b) {
  const std::string there = random_text(20'000'003);
  const std::string back = random_text(9'000'001);
  Scope scope;
  scope.spawn(write_in_parts(a, there));
  scope.spawn(write_in_parts(b, back));
  scope.spawn(read_and_compare(b, there));
  scope.spawn(read_and_compare(a, back));
  auto joined = co_await scope.join();
  CHECK(joined);
}

Task<void> transfer_over(Network& network, Address address) {
  auto connection = co_await make_connection(network, address);
  co_await transfer_both_ways(*connection.client, *connection.server);
}

TEST_CASE("what is written at one end is read at the other, whole and in order") {
  NetworkFixture fixture;
  TemporaryFolder folder;
  SUBCASE("TCP") { fixture.loop.run(transfer_over(fixture.network, kLoopback)); }
  SUBCASE("TCP v6") { fixture.loop.run(transfer_over(fixture.network, Address::tcp("::1", 0))); }
  SUBCASE("Unix") {
    fixture.loop.run(transfer_over(fixture.network, Address::unix_socket(folder.path + "/s")));
  }
}

TEST_CASE_FIXTURE(PairFixture, "a pair of sockets carries bytes both ways") {
  loop.run(transfer_both_ways(*a, *b));
}

Task<void> question_and_answer(Network& network) {
  auto connection = co_await make_connection(network, kLoopback);
  const std::string question = "how many?";
  co_await write_text(*connection.client, question);
  CHECK(connection.client->shutdown_write());
  auto heard = co_await read_text(*connection.server, 100);
  CHECK(heard == question);
  const std::string answer = "all of them";
  co_await write_text(*connection.server, answer);
  connection.server.reset();
  auto answered = co_await read_text(*connection.client, 100);
  CHECK(answered == answer);
}

TEST_CASE_FIXTURE(NetworkFixture, "a half-closed stream still brings the answer") {
  loop.run(question_and_answer(network));
}

// The reader parks and is told of bytes and end at once, or of the end while it reads the bytes.
Task<void> bytes_then_end(Stream& from, Stream& to) {
  const std::string words = "last words";
  Scope scope;
  scope.spawn(read_and_compare(to, words));
  co_await yield();
  co_await write_text(from, words);
  CHECK(from.shutdown_write());
  auto joined = co_await scope.join();
  CHECK(joined);
}

Task<void> bytes_then_end_over_tcp(Network& network) {
  auto connection = co_await make_connection(network, kLoopback);
  co_await bytes_then_end(*connection.client, *connection.server);
}

TEST_CASE_FIXTURE(PairFixture, "an end that comes together with the last bytes is not missed") {
  SUBCASE("Unix") { loop.run(bytes_then_end(*a, *b)); }
  SUBCASE("TCP") { loop.run(bytes_then_end_over_tcp(network)); }
}

Task<void> write_to_deaf(Loop& loop, Stream& stream) {
  const std::string much(32 << 20, 'x');
  auto write = write_once(stream, much);
  auto written = co_await with_deadline(loop.clock(), loop.clock().now() + 20ms, std::move(write));
  REQUIRE(!written);
  CHECK(written.error().code() == Code::deadline);
}

TEST_CASE_FIXTURE(PairFixture, "a write to a peer that stops reading waits until it is cancelled") {
  loop.run(write_to_deaf(loop, *a));
}

Task<void> read_in_vain(Loop& loop, Stream& stream, Stream& other) {
  auto read = read_once(stream);
  auto count = co_await with_deadline(loop.clock(), loop.clock().now() + 5ms, std::move(read));
  REQUIRE(!count);
  CHECK(count.error().code() == Code::deadline);
  const std::string late = "late";
  co_await write_text(other, late);
  auto text = co_await read_text(stream, 4);
  CHECK(text == late);
}

TEST_CASE_FIXTURE(PairFixture, "a cancelled read takes nothing; the next one gets the bytes") {
  loop.run(read_in_vain(loop, *a, *b));
}

Task<void> meet_reset(Loop& loop, Network& network) {
  auto connection = co_await make_connection(network, kLoopback);
  const std::string unread = "nobody reads this";
  co_await write_text(*connection.client, unread);
  auto slept = co_await loop.clock().sleep(1ms);
  CHECK(slept);
  connection.server.reset();  // with bytes unread: TCP resets
  auto count = co_await read_once(*connection.client);
  REQUIRE(!count);
  CHECK(count.error().code() == Code::unavailable);
  CHECK(count.error().text().find("127.0.0.1:") != std::string::npos);
  auto written = co_await write_once(*connection.client, unread);
  REQUIRE(!written);
  CHECK(written.error().code() == Code::unavailable);
}

TEST_CASE_FIXTURE(NetworkFixture, "a peer that resets is unavailable, and the error names it") {
  loop.run(meet_reset(loop, network));
}

Task<void> take_turns(int rounds, int& turns, const bool& done) {
  for (int i = 0; i < rounds && !done; ++i) {
    ++turns;
    co_await yield();
  }
}

Task<void> read_bytewise(Stream& stream, size_t count, bool& done) {
  for (size_t i = 0; i < count; ++i) {
    auto read = co_await read_once(stream);
    CHECK(read.value() == 1);
  }
  done = true;
}

Task<void> write_bytewise(Stream& stream, size_t count, bool& done) {
  for (size_t i = 0; i < count; ++i) {
    const std::string byte = "x";
    co_await write_text(stream, byte);
  }
  done = true;
}

Task<int> turns_beside(Task<void> busy, bool& done) {
  int turns = 0;
  Scope scope;
  scope.spawn(std::move(busy));
  scope.spawn(take_turns(1000, turns, done));
  auto joined = co_await scope.join();
  CHECK(joined);
  co_return turns;
}

TEST_CASE_FIXTURE(PairFixture, "a strand whose stream is always ready gives way to others") {
  bool wrote = false;
  bool read = false;
  CHECK(loop.run(turns_beside(write_bytewise(*a, 200, wrote), wrote)) >= 5);
  CHECK(loop.run(turns_beside(read_bytewise(*b, 200, read), read)) >= 5);
}

TEST_CASE_FIXTURE(PairFixture, "a Unix stream tells who is at the other end") {
  auto who = b->peer_credentials();
  REQUIRE(who);
  CHECK(who->pid == getpid());
  CHECK(who->uid == getuid());
  CHECK(who->gid == getgid());
}

Task<void> ask_tcp_peer(Network& network) {
  auto connection = co_await make_connection(network, kLoopback);
  CHECK(connection.client->peer_credentials().error().code() == Code::unsupported);
  std::vector<Handle> handles;
  handles.push_back(own_fd(dup(0)));
  const std::string text = "with a handle";
  auto written = co_await connection.client->write(as_bytes(text), handles);
  CHECK(written.error().code() == Code::unsupported);
}

TEST_CASE_FIXTURE(NetworkFixture, "credentials and handles are refused over TCP") {
  loop.run(ask_tcp_peer(network));
}

}  // namespace
}  // namespace tutti
