#include "fabric/parcel.h"

#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "base/seeds_test.h"
#include "fabric/fabric_fixture_test.h"

namespace tutti {
namespace {

template <class T>
std::vector<T> numbered(size_t count, T first) {
  std::vector<T> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

template <class T>
Bytes bytes_of(const std::vector<T>& numbers) {
  return std::as_bytes(std::span(numbers));
}

template <class T>
MutableBytes room_of(std::vector<T>& numbers) {
  return std::as_writable_bytes(std::span(numbers));
}

void finish(Fabric& fabric, const Result<std::shared_ptr<Parcel>>& parcel) {
  REQUIRE_MESSAGE(parcel.has_value(), parcel.error().text());
  const auto waited = fabric.wait(**parcel, 60s);
  REQUIRE_MESSAGE(waited.has_value(), waited.error().text());
}

TEST_CASE("messages of every size come from where they lie, by tag, in any order") {
  on_ranks(3, [](Fabric& fabric) {
    const uint32_t next = (fabric.rank() + 1) % 3;
    const uint32_t before = (fabric.rank() + 2) % 3;
    for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, seeds(3'000'001)}) {
      const auto mine = numbered<uint32_t>(count, fabric.rank());
      const auto other = numbered<uint32_t>(count, fabric.rank() + 100);
      auto first = fabric.send({.rank = next, .tag = 1, .bytes = bytes_of(mine)});
      auto second = fabric.send({.rank = next, .tag = 2, .bytes = bytes_of(other)});
      std::vector<uint32_t> got(count);
      finish(fabric, fabric.receive({.rank = before, .tag = 2, .into = room_of(got)}));
      CHECK(got == numbered<uint32_t>(count, before + 100));
      finish(fabric, fabric.receive({.rank = before, .tag = 1, .into = room_of(got)}));
      CHECK(got == numbered<uint32_t>(count, before));
      finish(fabric, first);
      finish(fabric, second);
    }
  });
}

TEST_CASE("messages of one tag come in order, also more than a rank shows at once") {
  on_ranks(2, [](Fabric& fabric) {
    constexpr uint32_t kMessages = 3 * kMostLetters;
    std::vector<uint32_t> numbers = numbered<uint32_t>(kMessages, 0);
    std::vector<std::shared_ptr<Parcel>> sent;
    for (uint32_t i = 0; i < kMessages; ++i) {
      const Bytes one = bytes_of(numbers).subspan(4UL * i, 4);
      if (fabric.rank() == 0) {
        auto parcel = fabric.send({.rank = 1, .bytes = one});
        REQUIRE(parcel.has_value());
        sent.push_back(*parcel);
      } else {
        uint32_t got = 0;
        const MutableBytes into = std::as_writable_bytes(std::span(&got, 1));
        finish(fabric, fabric.receive({.rank = 0, .into = into}));
        CHECK(got == i);
      }
    }
    for (const auto& parcel : sent) finish(fabric, parcel);
  });
}

TEST_CASE("a rank sends to itself") {
  on_ranks(1, [](Fabric& fabric) {
    const auto mine = numbered<uint64_t>(50, 7);
    std::vector<uint64_t> got(50);
    auto sent = fabric.send({.rank = 0, .tag = 9, .bytes = bytes_of(mine)});
    finish(fabric, fabric.receive({.rank = 0, .tag = 9, .into = room_of(got)}));
    finish(fabric, sent);
    CHECK(got == mine);
  });
}

TEST_CASE(
    "sizes that differ are an error at both ends, which names both, and the next message goes") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<uint32_t> numbers(100);
    const bool sends = fabric.rank() == 0;
    auto parcel = sends ? fabric.send({.rank = 1, .tag = 3, .bytes = bytes_of(numbers)})
                        : fabric.receive({.rank = 0, .tag = 3, .into = room_of(numbers).first(8)});
    const auto waited = !parcel ? Result<void>(fail(parcel.error())) : fabric.wait(**parcel, 60s);
    REQUIRE(!waited.has_value());
    CHECK(waited.error().text().find("400 bytes") != std::string::npos);
    CHECK(waited.error().text().find("and 8 for") != std::string::npos);
    parcel = sends ? fabric.send({.rank = 1, .tag = 3, .bytes = bytes_of(numbers)})
                   : fabric.receive({.rank = 0, .tag = 3, .into = room_of(numbers)});
    finish(fabric, parcel);
  });
}

TEST_CASE("a message that was given up is not received, and its place is free") {
  on_ranks(2, [](Fabric& fabric) {
    const auto old = numbered<uint32_t>(10, 1);
    const auto fresh = numbered<uint32_t>(10, 50);
    if (fabric.rank() == 0) {
      for (size_t i = 0; i < 2 * kMostLetters; ++i)
        REQUIRE(fabric.send({.rank = 1, .bytes = bytes_of(old)}).has_value());  // and dropped
      REQUIRE(fabric.world()->run({.kind = CallKind::barrier, .site = "here"}).has_value());
      finish(fabric, fabric.send({.rank = 1, .bytes = bytes_of(fresh)}));
      return;
    }
    REQUIRE(fabric.world()->run({.kind = CallKind::barrier, .site = "here"}).has_value());
    std::vector<uint32_t> got(10);
    finish(fabric, fabric.receive({.rank = 0, .into = room_of(got)}));
    CHECK(got == fresh);
  });
}

TEST_CASE("put and get reach what another rank shows, also where it lies apart") {
  on_ranks(2, [](Fabric& fabric) {
    Heap& heap = fabric.heap();
    constexpr uint64_t kSide = 64;
    auto place = heap.allocate(kSide * kSide);
    REQUIRE(place.has_value());
    for (uint64_t i = 0; i < kSide * kSide; ++i)
      heap.at(*place)[i] = static_cast<std::byte>(i % 251 + fabric.rank());
    // Every rank shows a column of its square, and all of it; both have the same place but for
    // the part of the heap.
    Strides column{.offset = *place + 5, .run = 1};
    column.repeat(kSide, kSide);
    const auto shown = fabric.region(column);
    REQUIRE(shown.has_value());
    const uint32_t other = 1 - fabric.rank();
    const uint64_t apart = heap.part_of(other).first - heap.part_of(fabric.rank()).first;
    Region theirs{other, shown->place};
    theirs.place.offset += apart;
    REQUIRE(fabric.world()->run({.kind = CallKind::barrier, .site = "here"}).has_value());
    std::vector<std::byte> got(kSide);
    finish(fabric, fabric.get({.from = theirs, .into = got}));
    for (uint64_t row = 0; row < kSide; ++row)
      CHECK(got[row] == static_cast<std::byte>((row * kSide + 5) % 251 + other));
    CHECK(!fabric.put({.to = theirs, .bytes = got}).has_value());
    REQUIRE(fabric.world()->run({.kind = CallKind::barrier, .site = "here"}).has_value());
    Region all{other, {.offset = *place + apart, .run = kSide}};
    std::fill(got.begin(), got.end(), static_cast<std::byte>(200 + fabric.rank()));
    finish(fabric, fabric.put({.to = all, .bytes = got}));
    const auto notice = fabric.send({.rank = other, .tag = 1});
    finish(fabric, fabric.receive({.rank = other, .tag = 1}));
    finish(fabric, notice);
    CHECK(heap.at(*place)[kSide - 1] == static_cast<std::byte>(200 + other));
  });
}

TEST_CASE("what is not in a rank's part of the heap is neither shown nor written") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<std::byte> some(8);
    const auto [begin, end] = fabric.heap().part_of(1);
    CHECK(!fabric.region({.offset = begin, .run = 8}).has_value());
    CHECK(!fabric.put({.to = {1, {.offset = begin, .run = 8}}, .bytes = some}).has_value());
    CHECK(!fabric.put({.to = {1, {.offset = end - 4, .run = 8}}, .bytes = some}).has_value());
    CHECK(!fabric.get({.from = {1, {.offset = ~0ULL - 4, .run = 8}}, .into = some}).has_value());
    CHECK(!fabric.send({.rank = 2, .bytes = some}).has_value());
  });
}

TEST_CASE("whoever's time is up is told for whom it waits, and may wait again") {
  on_ranks(2, [](Fabric& fabric) {
    std::vector<uint32_t> numbers(10);
    if (fabric.rank() == 0) {
      auto parcel = fabric.receive({.rank = 1, .tag = 4, .into = room_of(numbers)});
      REQUIRE(parcel.has_value());
      const auto late = fabric.wait(**parcel, 1ms);
      REQUIRE(!late.has_value());
      CHECK(late.error().text().find("a message of rank 1 with tag 4") != std::string::npos);
      finish(fabric, fabric.send({.rank = 1, .tag = 5}));
      finish(fabric, parcel);
      return;
    }
    finish(fabric, fabric.receive({.rank = 0, .tag = 5}));
    finish(fabric, fabric.send({.rank = 0, .tag = 4, .bytes = bytes_of(numbers)}));
  });
}

TEST_CASE("a death ends messages that wait, and who has left is told of") {
  SharedHost host(3);
  const auto begin = [](Fabric& fabric) {
    std::vector<uint32_t> numbers(10);
    auto sent = fabric.send({.rank = 1, .tag = 1, .bytes = bytes_of(numbers)});
    // On a slow machine it is told before it waits.
    const auto ended = sent ? fabric.wait(**sent, 60s) : Result<void>(fail(sent.error()));
    REQUIRE(!ended.has_value());
    CHECK(ended.error().code() == Code::unavailable);
    CHECK(fabric.lost().front() == 1);  // and who has left meanwhile
  };
  const auto meet = [](Fabric& fabric) {
    REQUIRE(fabric.world()->run({.kind = CallKind::barrier, .site = "here"}).has_value());
  };
  std::atomic<bool> told = false;  // before that nobody else leaves
  host.run([&](Fabric& fabric) {
    meet(fabric);
    if (fabric.rank() == 0) {
      begin(fabric);
      told = true;
    }
    if (fabric.rank() == 2) {
      host.die(1);
      while (!told) std::this_thread::yield();
    }
    if (fabric.rank() == 1) fabric.was_killed();
  });
  on_ranks(2, [&](Fabric& fabric) {
    meet(fabric);
    if (fabric.rank() == 0) begin(fabric);
  });
}

}  // namespace
}  // namespace tutti
