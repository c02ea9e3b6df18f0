#include "record/reader.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "base/hash.h"
#include "record/shared_ring.h"
#include "world/manual_clock.h"

namespace tutti {
namespace {

using record_layout::Header;
using record_layout::Slot;

const RecordKind kFirst("test.first", "a", "b");
const RecordKind kSecond("test.second", "c", "d");

constexpr uint32_t kRecords = 4;
const Recorder::Options kSmall{.lanes = 1, .records_per_lane = kRecords, .kinds = 256, .cells = 2};

struct Bench {
  Executor executor;
  ManualClock clock;
  SharedRing ring{clock, kSmall};

  // The bytes of slot 0 in a copy of the file.
  static size_t slot_at(std::string_view bytes) { return bytes.size() - kRecords * sizeof(Slot); }
};

std::string error_of(std::string_view bytes) {
  auto recording = parse_recording(as_bytes(bytes));
  return recording ? "" : recording.error().text();
}

// What two writers a lap apart, or a death between two stores, can leave in a slot.
TEST_CASE("every mix of the words of two records is left out") {
  Bench bench;
  bench.ring.recorder().event(kFirst, 1, 2);
  const std::string old_bytes = bench.ring.bytes();
  for (uint32_t i = 1; i < kRecords; ++i) bench.ring.recorder().event(kFirst);
  bench.clock.advance(1ms);
  const Span span = bench.ring.recorder().span(kSecond, 3, 4, 5);
  const std::string new_bytes = bench.ring.bytes();
  REQUIRE(parse_recording(as_bytes(new_bytes))->records.size() == kRecords);

  const size_t at = Bench::slot_at(new_bytes);
  constexpr size_t kWords = sizeof(Slot) / sizeof(uint64_t);
  constexpr unsigned kAllOld = (1U << kWords) - 1;
  for (unsigned mix = 1; mix <= kAllOld; ++mix) {
    std::string mixed = new_bytes;
    for (size_t word = 0; word < kWords; ++word)
      if (mix >> word & 1) mixed.replace(at + word * 8, 8, old_bytes, at + word * 8, 8);
    if (mixed == new_bytes) continue;  // these words are equal in both
    const auto recording = parse_recording(as_bytes(mixed));
    REQUIRE(recording);
    CHECK(recording->records.size() == kRecords - 1);
    CHECK(recording->torn == 1);
    CHECK(recording->overwritten == 1);
  }
}

TEST_CASE("records written after the reader read the position are kept") {
  Bench bench;
  for (uint32_t i = 0; i < kRecords + 1; ++i) bench.ring.recorder().event(kFirst, i);
  std::string bytes = bench.ring.bytes();
  store_le<uint64_t>(reinterpret_cast<std::byte*>(bytes.data()) + record_layout::kPositionsAt, 3);
  const auto recording = parse_recording(as_bytes(bytes));
  CHECK(recording->records.size() == kRecords);
  CHECK(recording->written() == kRecords + 1);
}

TEST_CASE("a file of another kind is refused") {
  CHECK(error_of("") == "this is no recording: its first bytes are not \"TUTTIREC\"");
  CHECK(error_of("TUTTI") == error_of(""));
  CHECK(error_of(std::string(100'000, 'x')) == error_of(""));
}

TEST_CASE("a file that was cut short is refused with the byte it ends at") {
  Bench bench;
  const std::string bytes = bench.ring.bytes();
  CHECK(error_of(bytes.substr(0, 100)) ==
        "cut short within the header: 100 of 4096 bytes are there");
  CHECK(
      error_of(bytes.substr(0, bytes.size() - 1)) ==
      fmt::format("cut short at byte {}: the header promises {}", bytes.size() - 1, bytes.size()));
  CHECK(error_of(bytes) == "");
}

TEST_CASE("a damaged header is refused with the bytes it is in") {
  Bench bench;
  const std::string bytes = bench.ring.bytes();
  for (size_t i = 12; i < sizeof(Header); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 1;
    CHECK(error_of(damaged).starts_with("the header, bytes 0 to 192, is damaged"));
  }
}

TEST_CASE("a version from the future is refused with what to do") {
  Bench bench;
  std::string bytes = bench.ring.bytes();
  bytes[8] = 7;
  CHECK(error_of(bytes) ==
        "a recording of version 7, and this program reads version 1: use the tutti that wrote it");
}

// With a hash that is right: what a program with a bug, or malice, could write.
TEST_CASE("a header whose sizes make no sense is refused") {
  Bench bench;
  for (const uint32_t size : {0U, 3U, 1U << 30, ~0U}) {
    for (size_t field = offsetof(Header, header_bytes); field < offsetof(Header, pid); field += 4) {
      std::string bytes = bench.ring.bytes();
      auto* start = reinterpret_cast<std::byte*>(bytes.data());
      if (size == 3 && field >= offsetof(Header, kinds)) continue;  // tables may have any size
      store_le(start + field, size);
      store_le(start + offsetof(Header, check), hash64({start, offsetof(Header, check)}));
      CHECK(error_of(bytes) == "the header's sizes, from byte 12 to 40, make no sense");
    }
  }
}

TEST_CASE("a damaged name costs the name and not the records") {
  Bench bench;
  bench.ring.recorder().event(kFirst, 1);
  std::string bytes = bench.ring.bytes();
  bytes[record_layout::kHeaderBytes + kFirst.index() * sizeof(record_layout::Entry) + 20] ^= 1;
  const auto recording = parse_recording(as_bytes(bytes));
  REQUIRE(recording->records.size() == 1);
  CHECK(recording->kinds.at(recording->records[0].kind).name == "");
  CHECK(recording->kinds.at(kSecond.index()).name == "test.second");
}

}  // namespace
}  // namespace tutti
