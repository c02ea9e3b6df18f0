// What is given up in the middle, and strangers who connect.
#include "fabric/tcp_fixture_test.h"

namespace tutti {
namespace {

using tcp::kChunkBytes;

// Made once: under a sanitizer that takes longer than to send it.
std::unique_ptr<std::string> some_bytes(size_t size) {
  static const std::string all = pattern(12 * kChunkBytes + 5, 1);
  return std::make_unique<std::string>(all, 0, size);
}

// Each buffer dies as soon as its call is over.
Task<Result<void>> send_own(TcpTransport& from, uint32_t to, Tag tag, size_t size) {
  const auto bytes = some_bytes(size);
  auto sent = co_await from.send(to, tag, as_bytes(*bytes));
  co_return sent;
}
Task<Result<void>> receive_own(TcpTransport& at, uint32_t from, Tag tag, size_t size) {
  const auto bytes = std::make_unique<std::string>(size, '\0');
  auto received = co_await at.receive(from, tag, as_mutable_bytes(*bytes));
  co_return received;
}
Task<Result<void>> put_own(TcpTransport& from, uint32_t to, size_t size) {
  const auto bytes = some_bytes(size);
  auto done = co_await from.put(to, TcpRanks::kHeap / 2, as_bytes(*bytes));
  co_return done;
}
Task<Result<void>> get_own(TcpTransport& at, uint32_t from, size_t size) {
  const auto bytes = std::make_unique<std::string>(size, '\0');
  auto done = co_await at.get(from, 0, as_mutable_bytes(*bytes));
  co_return done;
}

Task<void> give_up_at(TcpRanks& ranks, int what, int turns) {
  const size_t size = 12 * kChunkBytes + 5;
  const Tag tag{5, 5};
  Scope given_up;
  Scope others;
  Outcomes outcomes;
  if (what == 0) {
    start(given_up, outcomes, send_own(ranks[0], 1, tag, size));
    start(others, outcomes, receive_own(ranks[1], 0, tag, size));
  } else if (what == 1) {
    start(given_up, outcomes, receive_own(ranks[1], 0, tag, size));
    start(others, outcomes, send_own(ranks[0], 1, tag, size));
  } else if (what == 2) {
    start(given_up, outcomes, put_own(ranks[0], 1, size));
  } else {
    start(given_up, outcomes, get_own(ranks[0], 1, size));
  }
  for (int i = 0; i < turns; ++i) co_await yield();
  given_up.cancel();
  (void)co_await given_up.join();
  const bool too_late = outcomes.at(0).has_value();
  if (!too_late) CHECK(outcomes.at(0).error().code() == Code::cancelled);
  // Whoever is left over goes on with the next who sends or receives with this tag.
  Scope next;
  if (what == 0) start(next, outcomes, send_own(ranks[0], 1, tag, size));
  if (what == 1) start(next, outcomes, receive_own(ranks[1], 0, tag, size));
  (void)co_await others.join();
  next.cancel();
  (void)co_await next.join();
  if (what < 2) CHECK(outcomes.at(1).has_value());
}

TEST_CASE("a call can be given up at any time, and its buffer with it") {
  for (const uint32_t streams : {1U, 3U}) {
    TcpRanks ranks({.streams = streams});
    for (int turns = 0; turns < 60; ++turns)
      for (int what = 0; what < 4; ++what) ranks.world.run(give_up_at(ranks, what, turns));
    CHECK(ranks[0].counters().broken == 0);
    CHECK(ranks[1].counters().broken == 0);
  }
}

Task<void> strangers(TcpRanks& ranks) {
  const Address address = ranks[1].address();
  for (const std::string& said : {pattern(500, 1), std::string("GET / HTTP/1.0\r\n\r\n")}) {
    auto stream = co_await ranks.world.network().connect(address);
    REQUIRE(stream.has_value());
    (void)co_await (*stream)->write(as_bytes(said));
    (void)(*stream)->shutdown_write();
    std::string answer(100, '\0');
    auto got = co_await (*stream)->read(as_mutable_bytes(answer));
    CHECK((!got || *got == 0));
  }
  CHECK(ranks[1].counters().strangers == 2);
}

Task<void> wait_for_stranger(TcpRanks& ranks, TcpTransport& other) {
  Scope scope;
  Outcomes outcomes;
  start(scope, outcomes, send_own(other, 1, {1, 1}, 10));
  while (ranks[1].counters().strangers < 3) (void)co_await ranks.world.clock().sleep(1ms);
  other.end_epoch({Code::unavailable, "enough"});
  (void)co_await scope.join();
  CHECK(outcomes.at(0).error().message() == "enough");
  CHECK(other.counters().links == 0);
  co_await other.stop();
}

std::unique_ptr<TcpTransport> open_other(TcpRanks& ranks, const JobKey& key) {
  TcpOptions options{
      .world = ranks.world, .addresses = ranks.book, .rank = 0, .world_size = 2, .key = key};
  auto opened = ranks.world.run(TcpTransport::open(std::move(options)));
  REQUIRE(opened.has_value());
  return std::move(*opened);
}

TEST_CASE(
    "who does not know the key, or says what a rank says already, is turned away in silence") {
  set_log_level(LogLevel::off);
  SUBCASE("garbage") {
    TcpRanks ranks;
    ranks.world.run(strangers(ranks));
  }
  SUBCASE("another key") {
    TcpRanks ranks;
    auto other = open_other(ranks, test_key(2));
    other->begin_epoch(1);
    ranks.world.run(wait_for_stranger(ranks, *other));
  }
  SUBCASE("an epoch that is over") {
    TcpRanks ranks;
    ranks[1].begin_epoch(2);
    auto other = open_other(ranks, test_key());
    other->begin_epoch(1);
    ranks.world.run(wait_for_stranger(ranks, *other));
  }
  SUBCASE("a second process of a rank") {
    TcpRanks ranks;
    auto sent = [](TcpRanks& both) -> Task<void> {
      Scope scope;
      Outcomes outcomes;
      start(scope, outcomes, send_own(both[0], 1, {2, 2}, 10));
      start(scope, outcomes, receive_own(both[1], 0, {2, 2}, 10));
      (void)co_await scope.join();
      CHECK(outcomes.all_good());
    };
    ranks.world.run(sent(ranks));
    auto other = open_other(ranks, test_key());
    other->begin_epoch(1);
    ranks.world.run(wait_for_stranger(ranks, *other));
  }
  set_log_level(LogLevel::info);
}

Task<void> overtake(TcpRanks& ranks, bool& bulk_was_done) {
  const size_t size = 64 << 20;
  const std::string bulk(size, 'b');
  std::string bulk_came(size, '\0');
  Scope scope;
  Outcomes outcomes;
  start(scope, outcomes, ranks[1].receive(0, {1, 1}, as_mutable_bytes(bulk_came)));
  start(scope, outcomes, ranks[0].send(1, {1, 1}, as_bytes(bulk), Priority::bulk));
  while (ranks[0].counters().bytes_sent < size / 8) co_await yield();
  // Large too, so that it goes the same way.
  std::string urgent(3 * kChunkBytes, 'u');
  std::string urgent_came(urgent.size(), '\0');
  start(scope, outcomes, ranks[1].receive(0, {1, 2}, as_mutable_bytes(urgent_came)));
  auto sent = co_await ranks[0].send(1, {1, 2}, as_bytes(urgent), Priority::urgent);
  CHECK(sent.has_value());
  bulk_was_done = outcomes.results[0].has_value();
  (void)co_await scope.join();
  CHECK(outcomes.all_good());
  CHECK(bulk_came == bulk);
  CHECK(urgent_came == urgent);
}

TEST_CASE("what is urgent overtakes what is large") {
  TcpRanks ranks;
  bool bulk_was_done = true;
  ranks.world.run(overtake(ranks, bulk_was_done));
  CHECK(!bulk_was_done);
}

}  // namespace
}  // namespace tutti
