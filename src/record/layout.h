// The bytes of a recording, as docs/record.md specifies them. Writer and reader share this file and
// nothing else. All numbers are little-endian; every offset is a multiple of eight.
//
//   header | kinds | cells | lane 0 | lane 1 | …
//
// What is written once (header, names) carries an XXH3 of its bytes and every record a check of its
// words, so that whatever tore it (a killed writer, two writers a whole lap apart on one slot, a
// page that reached the disk half written) is found out by the reader alone, and writers never
// wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::record_layout {

constexpr std::array<char, 8> kMagic = {'T', 'U', 'T', 'T', 'I', 'R', 'E', 'C'};
constexpr uint32_t kVersion = 1;

// Limits of the format: a reader refuses more, so that a damaged header cannot make it allocate.
constexpr uint32_t kMaxLanes = 32;              // their positions fit in the header's page
constexpr uint32_t kMaxLaneRecords = 1U << 20;  // 64 MiB each
constexpr uint32_t kMaxEntries = 1U << 14;      // of either table

struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint32_t entry_bytes;
  uint32_t record_bytes;
  uint32_t lanes;         // a power of two
  uint32_t lane_records;  // a power of two
  uint32_t kinds;
  uint32_t cells;
  uint64_t pid;
  int64_t created_ns;            // on the monotonic clock of the records
  int64_t created_unix_ns;       // the same moment since 1970
  std::array<char, 64> host;     // UTF-8, zeros after its end
  std::array<char, 64> process;  // the same
  uint64_t check;                // XXH3 of everything above
};
static_assert(sizeof(Header) == 200);

// After the header, within its page: words that change. One line of the cache for each that is hot.
constexpr uint32_t kHeaderBytes = 4096;
constexpr size_t kClosedAt = 512;   // when the recorder was closed; 0 while open, or after a kill
constexpr size_t kRefusedAt = 576;  // names that found their table full
constexpr size_t kPositionsAt = 1024;  // per lane: how many records were begun
constexpr size_t kPositionStride = 64;
static_assert(kPositionsAt + kMaxLanes * kPositionStride <= kHeaderBytes);

enum class EntryType : uint8_t { none = 0, kind = 1, counter = 2, gauge = 3 };

// A kind of event with the labels of its two fields, or a cell with its value. `type` is stored
// last: an entry without one is still empty. Names are UTF-8, one after the other in `text`.
struct Entry {
  static constexpr size_t kTextBytes = 104;
  int64_t value;  // of a cell; not covered by the check
  EntryType type;
  uint8_t name_bytes;
  uint8_t a_bytes;
  uint8_t b_bytes;
  uint32_t unused;
  std::array<char, kTextBytes> text;
  uint64_t check;  // XXH3 of type up to the end of text
};
static_assert(sizeof(Entry) == 128);

enum class Op : uint8_t { event = 0, begin = 1, end = 2 };

// One cache line. The slot of a record in its lane is its position modulo lane_records.
struct Slot {
  uint64_t sequence;  // 1 + position * lanes + lane; 0 in a slot never written
  int64_t time_ns;    // monotonic
  uint32_t kind;      // index into kinds
  uint16_t thread;    // numbered from 1 in the order of their first record
  Op op;
  uint8_t unused;
  uint64_t span;   // begin, end: the span, named by the sequence of its begin; event: its span or 0
  int64_t detail;  // begin: the enclosing span or 0; end: time_ns of the begin; event: 0
  int64_t a;
  int64_t b;
  uint64_t check;  // check_of() the words above
};
static_assert(sizeof(Slot) == 64);

// The seven words of a slot before its check.
using SlotWords = std::array<uint64_t, offsetof(Slot, check) / sizeof(uint64_t)>;

// The two halves of the 128-bit product, one upon the other.
constexpr uint64_t fold_product(uint64_t left, uint64_t right) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{left} * right;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// XXH3 would be half of an event's instructions; this is three multiplications for an event, whose
// detail is 0. Constants: fractional parts of the square roots of 2, 3, 5, 7, 11 and 13, the odd
// one where a factor must be odd. words[2] is never 0: threads are numbered from 1.
constexpr uint64_t check_of(const SlotWords& words) {
  return fold_product(words[0] ^ 0x6a09e667f3bcc908, words[1] ^ 0xbb67ae8584caa73b) ^
         fold_product(words[2] + words[4] * 0x3c6ef372fe94f82b, words[3] ^ 0xa54ff53a5f1d36f1) ^
         fold_product(words[5] ^ 0x510e527fade682d1, words[6] ^ 0x9b05688c2b3e6c1f);
}

constexpr uint64_t kinds_at() { return kHeaderBytes; }
constexpr uint64_t cells_at(const Header& header) {
  return kinds_at() + uint64_t{header.kinds} * sizeof(Entry);
}
constexpr uint64_t lane_bytes(const Header& header) {
  return uint64_t{header.lane_records} * sizeof(Slot);
}
constexpr uint64_t lane_at(const Header& header, uint32_t lane) {
  return cells_at(header) + uint64_t{header.cells} * sizeof(Entry) + lane * lane_bytes(header);
}
constexpr uint64_t file_bytes(const Header& header) { return lane_at(header, header.lanes); }

}  // namespace tutti::record_layout
