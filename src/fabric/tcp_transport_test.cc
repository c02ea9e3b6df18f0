#include "fabric/tcp_fixture_test.h"

namespace tutti {
namespace {

using tcp::kChunkBytes;
using tcp::kSmallBytes;

Task<void> exchange(TcpRanks& ranks, std::vector<size_t> sizes, bool receiver_first) {
  Scope scope;
  Outcomes outcomes;
  std::vector<std::string> sent;
  std::vector<std::string> came;
  for (size_t i = 0; i < sizes.size(); ++i) {
    sent.push_back(pattern(sizes[i], i));
    came.emplace_back(sizes[i], '\0');
  }
  for (int step = 0; step < 2; ++step) {
    const bool receiving = (step == 0) == receiver_first;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Tag tag{7, i};
      if (receiving) {
        start(scope, outcomes, ranks[1].receive(0, tag, as_mutable_bytes(came[i])));
      } else {
        start(scope, outcomes, ranks[0].send(1, tag, as_bytes(sent[i])));
      }
    }
    (void)co_await ranks.world.clock().sleep(step == 0 ? 20ms : 0ms);
  }
  (void)co_await scope.join();
  CHECK(outcomes.all_good());
  for (size_t i = 0; i < sizes.size(); ++i) {
    CAPTURE(sizes[i]);
    CHECK(came[i] == sent[i]);
  }
}

const std::vector<size_t> kSizes = {0,
                                    1,
                                    777,
                                    kSmallBytes - 1,
                                    kSmallBytes,
                                    kSmallBytes + 1,
                                    kChunkBytes - 1,
                                    kChunkBytes,
                                    kChunkBytes + 1,
                                    5 * kChunkBytes + 12'345};

TEST_CASE("messages of every size arrive as they were sent, whoever comes first") {
  for (const uint32_t streams : {1U, 3U}) {
    for (const bool encrypt : {false, true}) {
      CAPTURE(streams);
      CAPTURE(encrypt);
      TcpRanks ranks({.streams = streams, .encrypt = encrypt});
      ranks.world.run(exchange(ranks, kSizes, true));
      ranks.world.run(exchange(ranks, kSizes, false));
      CHECK(ranks[0].counters().broken == 0);
      CHECK(ranks[1].counters().unexpected >= 5);
    }
  }
  for (const bool ucx : {false, true}) {
    TcpRanks plain({.checksums = false, .ucx = ucx});
    plain.world.run(exchange(plain, kSizes, true));
    plain.world.run(exchange(plain, kSizes, false));
    CHECK(plain[0].name() == (ucx ? "ucx" : "tcp"));
    CHECK(plain[0].counters().broken == 0);
  }
  for (const bool encrypt : {false, true}) {
    TcpRanks ranks({.streams = 3, .encrypt = encrypt, .ucx = true});
    ranks.world.run(exchange(ranks, kSizes, true));
    ranks.world.run(exchange(ranks, kSizes, false));
    CHECK(ranks[0].counters().broken == 0);
  }
}

Task<void> everybody_to_everybody(TcpRanks& ranks, size_t messages) {
  const auto count = static_cast<uint32_t>(ranks.ranks.size());
  Scope scope;
  Outcomes outcomes;
  std::map<std::tuple<uint32_t, uint32_t, size_t>, std::pair<std::string, std::string>> texts;
  for (uint32_t from = 0; from < count; ++from) {
    for (uint32_t to = 0; to < count; ++to) {
      for (size_t i = 0; i < messages; ++i) {
        const size_t size =
            (i * 7919 + from * 104'729 + to * 1299) % (i % 5 == 0 ? 900'000 : 9'000);
        auto& [sent, came] = texts[{from, to, i}];
        sent = pattern(size, i * 64 + from * 8 + to);
        came.resize(size);
        const auto priority = static_cast<Priority>(i % 3);
        const Tag tag{from, i};
        start(scope, outcomes, ranks[from].send(to, tag, as_bytes(sent), priority));
        start(scope, outcomes, ranks[to].receive(from, tag, as_mutable_bytes(came)));
      }
    }
  }
  (void)co_await scope.join();
  CHECK(outcomes.all_good());
  size_t wrong = 0;
  for (const auto& [key, text] : texts) wrong += text.first != text.second;
  CHECK(wrong == 0);
}

TEST_CASE("many messages go between all ranks at once, to oneself too") {
  for (const uint32_t streams : {1U, 4U}) {
    for (const bool ucx : {false, true}) {
      TcpRanks ranks({.ranks = 3, .streams = streams, .ucx = ucx});
      ranks.world.run(everybody_to_everybody(ranks, 60));
    }
  }
}

Task<void> reuse_a_tag(TcpRanks& ranks, size_t size) {
  for (uint64_t i = 0; i < 20; ++i) {
    const std::string sent = pattern(size, i);
    std::string came(size, '\0');
    Scope scope;
    Outcomes outcomes;
    start(scope, outcomes, ranks[0].send(1, {1, 1}, as_bytes(sent)));
    start(scope, outcomes, ranks[1].receive(0, {1, 1}, as_mutable_bytes(came)));
    (void)co_await scope.join();
    CHECK(outcomes.all_good());
    CHECK(came == sent);
  }
}

TEST_CASE("a tag is used again for the next message") {
  for (const bool ucx : {false, true}) {
    TcpRanks ranks({.ucx = ucx});
    ranks.world.run(reuse_a_tag(ranks, 100));
    ranks.world.run(reuse_a_tag(ranks, 2 * kChunkBytes));
  }
}

Task<void> mismatch(TcpRanks& ranks, size_t sent, size_t wanted, bool receiver_first) {
  const std::string out(sent, 'x');
  std::string in(wanted, '\0');
  Scope scope;
  Outcomes outcomes;
  for (int step = 0; step < 2; ++step) {
    if ((step == 0) == receiver_first) {
      start(scope, outcomes, ranks[1].receive(0, {3, 4}, as_mutable_bytes(in)));
    } else {
      start(scope, outcomes, ranks[0].send(1, {3, 4}, as_bytes(out)));
    }
    (void)co_await ranks.world.clock().sleep(20ms);
  }
  (void)co_await scope.join();
  const std::string words =
      fmt::format("rank 0 sent {} bytes with tag 3.4 where rank 1 receives {}", sent, wanted);
  for (size_t i = 0; i < 2; ++i) {
    REQUIRE(!outcomes.at(i).has_value());
    CHECK(outcomes.at(i).error().code() == Code::invalid);
    CHECK(outcomes.at(i).error().message() == words);
  }
}

TEST_CASE("sizes that differ are an error at both ends, which names both") {
  const size_t large = kSmallBytes * 3;
  for (const auto& [ucx, first] : {std::pair(false, false), std::pair(false, true),
                                   std::pair(true, false), std::pair(true, true)}) {
    TcpRanks ranks({.ucx = ucx});
    ranks.world.run(mismatch(ranks, 10, 11, first));
    ranks.world.run(mismatch(ranks, large, large + 1, first));
    ranks.world.run(mismatch(ranks, 10, large, first));
    ranks.world.run(mismatch(ranks, large, 10, first));
    ranks.world.run(reuse_a_tag(ranks, 10));
    ranks.world.run(reuse_a_tag(ranks, large));
  }
}

Task<void> one_sided(TcpRanks& ranks) {
  const uint64_t half = TcpRanks::kHeap / 2;
  const std::string theirs = ranks.heaps[1];
  for (const size_t size : {size_t{0}, size_t{1}, kChunkBytes, 3 * kChunkBytes + 5}) {
    std::string got(size, '\0');
    auto done = co_await ranks[0].get(1, 1001, as_mutable_bytes(got));
    CHECK(done.has_value());
    CHECK(got == theirs.substr(1001, size));
    const std::string put = pattern(size, size + 99);
    done = co_await ranks[0].put(1, half + 17, as_bytes(put), Priority::bulk);
    CHECK(done.has_value());
    CHECK(ranks.heaps[1].substr(half + 17, size) == put);
  }
  CHECK(ranks.heaps[1].substr(0, half) == theirs.substr(0, half));
  // Rows of a tile, in several pieces; their ends are not those of the rows.
  Strides tile{.offset = 33, .run = 10'007};
  tile.repeat(91, 11'003);
  std::string rows(tile.bytes(), '\0');
  std::string plain;
  for (uint64_t row = 0; row < 91; ++row) plain += theirs.substr(33 + row * 11'003, 10'007);
  auto done = co_await ranks[0].get(1, tile, as_mutable_bytes(rows), Priority::bulk);
  CHECK(done.has_value());
  CHECK(rows == plain);
}

Task<void> out_of_bounds(TcpRanks& ranks) {
  std::string bytes(1000, 'x');
  const std::string before = ranks.heaps[1];
  for (const uint64_t offset : {TcpRanks::kHeap - 999, TcpRanks::kHeap, ~uint64_t{0} - 10}) {
    auto put = co_await ranks[0].put(1, offset, as_bytes(bytes));
    CHECK(put.error().code() == Code::invalid);
    auto got = co_await ranks[0].get(1, offset, as_mutable_bytes(bytes));
    CHECK(got.error().code() == Code::invalid);
  }
  Strides tile{.offset = 0, .run = 10};
  tile.repeat(100, TcpRanks::kHeap / 99 + 1);
  auto beyond = co_await ranks[0].get(1, tile, as_mutable_bytes(bytes));
  CHECK(beyond.error().code() == Code::invalid);
  auto put = co_await ranks[0].put(1, 5, as_bytes(bytes));
  CHECK(put.error().code() == Code::denied);
  const std::string large(3 * kChunkBytes, 'x');
  put = co_await ranks[0].put(1, 5, as_bytes(large));
  CHECK(put.error().code() == Code::denied);
  CHECK(ranks.heaps[1] == before);
  auto nobody = co_await ranks[0].put(2, 0, as_bytes(bytes));
  CHECK(nobody.error().code() == Code::invalid);
  CHECK(ranks[0].counters().broken == 0);
}

TEST_CASE("put and get reach the heap of the other rank, without its help") {
  for (const bool encrypt : {false, true}) {
    for (const bool ucx : {false, true}) {
      TcpRanks ranks({.streams = 2, .encrypt = encrypt, .ucx = ucx});
      ranks.world.run(one_sided(ranks));
    }
  }
}

TEST_CASE("put and get stay within the heap, and put where the owner allows it") {
  for (const bool ucx : {false, true}) {
    TcpRanks ranks({.ucx = ucx});
    ranks.world.run(out_of_bounds(ranks));
  }
}

Task<void> flood(TcpRanks& ranks) {
  const std::string bytes(kSmallBytes, 'x');
  const size_t fit = tcp::kMaxUnexpectedBytes / kSmallBytes;
  Scope scope;
  Outcomes outcomes;
  for (size_t i = 0; i < fit + 1; ++i)
    start(scope, outcomes, ranks[0].send(1, {1, i}, as_bytes(bytes)));
  while (!outcomes.results[fit]) (void)co_await ranks.world.clock().sleep(1ms);
  CHECK(outcomes.at(fit).error().code() == Code::exhausted);
  CHECK(outcomes.at(fit).error().message().find("messages") != std::string::npos);
  std::string into(kSmallBytes, '\0');
  auto nothing = co_await ranks[1].receive(0, {2, 2}, as_mutable_bytes(into));
  CHECK(nothing.error().code() == Code::exhausted);
  CHECK(nothing.error().message().find("of rank 0") != std::string::npos);
  for (size_t i = 0; i < fit; ++i) {
    auto came = co_await ranks[1].receive(0, {1, i}, as_mutable_bytes(into));
    CHECK(came.has_value());
  }
  (void)co_await scope.join();
}

TEST_CASE("more than a rank stores is an error at both ends, which names who sends") {
  set_log_level(LogLevel::off);
  for (const bool ucx : {false, true}) {
    TcpRanks ranks({.ucx = ucx});
    ranks.world.run(flood(ranks));
  }
  set_log_level(LogLevel::info);
}

Task<void> end_and_begin(TcpRanks& ranks) {
  std::string small(10, '\0');
  std::string large(kChunkBytes, '\0');
  Scope scope;
  Outcomes outcomes;
  start(scope, outcomes, ranks[0].receive(1, {1, 1}, as_mutable_bytes(small)));
  start(scope, outcomes, ranks[0].receive(1, {1, 2}, as_mutable_bytes(large)));
  start(scope, outcomes, ranks[0].send(1, {1, 3}, as_bytes(small)));
  start(scope, outcomes, ranks[0].send(1, {1, 4}, as_bytes(large)));
  (void)co_await ranks.world.clock().sleep(20ms);
  ranks[0].end_epoch({Code::unavailable, "rank 7 was lost"});
  (void)co_await scope.join();
  auto later = co_await ranks[0].send(1, {1, 5}, as_bytes(small));
  outcomes.results.emplace_back(later);
  for (const auto& result : outcomes.results) CHECK(result->error().message() == "rank 7 was lost");
  // The other one follows; what it had stored is of the epoch before.
  ranks[0].begin_epoch(2);
  ranks[1].begin_epoch(2);
  std::string came(10, 'x');
  Scope next;
  Outcomes good;
  const std::string sent = pattern(10, 5);
  start(next, good, ranks[1].receive(0, {1, 3}, as_mutable_bytes(came)));
  start(next, good, ranks[0].send(1, {1, 3}, as_bytes(sent)));
  (void)co_await next.join();
  CHECK(good.all_good());
  CHECK(came == sent);
}

TEST_CASE("the end of an epoch ends every call, and nothing of it comes into the next") {
  for (const bool ucx : {false, true}) {
    TcpRanks ranks({.ucx = ucx});
    ranks.world.run(end_and_begin(ranks));
  }
}

}  // namespace
}  // namespace tutti
