// What a rank shows the other ranks of its host: one Board at the beginning of its part of the
// heap. Only its rank writes it (and rings the bells of others); everybody reads it, also from
// outside and after the rank's death. docs/fabric.md is the manual.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fabric/call_kind.h"
#include "fabric/flight.h"

namespace tutti {

// One tick of a group: what a rank brings along. A cache line, so that arriving costs one.
struct alignas(64) BoardCall {
  std::atomic<uint32_t> tick;  // written last
  CallKind kind;
  DType type;
  ReduceOp op;
  uint8_t parts;      // entries of the table in `small`, if any
  uint64_t elements;  // as the kind has it
  uint64_t input;     // offset in the heap; kInSmall: in `small`
  uint64_t output;    // offset in the heap, or kPrivate
  uint32_t root;
  uint32_t site;       // of FlightRecord::sites
  uint32_t call;       // which call of the group this is
  uint32_t lanes;      // of a reduction
  uint64_t signature;  // equal for all ranks that mean the same call
  uint64_t room;       // elements of the output, or kUnknownRoom
};
static_assert(sizeof(BoardCall) == 64);

constexpr uint32_t kShownDimensions = 6;  // of a shape, in words

// What else of a call must be alike, for the words when it is not. A line of its own, which nobody
// reads as long as signatures are the same. Counts that must be alike follow the table of parts.
struct alignas(64) BoardDetail {
  uint32_t dimensions;  // 0: flat
  int32_t distance;     // of shift
  uint16_t counts;      // of reduce_scatter; the first of them are in `small`
  bool shared;          // one output for all
  bool uneven;          // all_to_all, with counts
  uint32_t shape_hash;  // if there are more dimensions than are shown
  uint64_t shape[kShownDimensions];
};
static_assert(sizeof(BoardDetail) == 64);

// Of the table in `small`: the first lane, how many, and where their sum lies.
constexpr uint64_t kPartBytes = 24;

constexpr uint64_t kInSmall = ~uint64_t{0};
constexpr uint64_t kUnknownRoom = ~uint64_t{0};
constexpr uint64_t kPrivate = ~uint64_t{0} - 1;

constexpr size_t kTuningWords = 8;
constexpr uint64_t kSmallBytes = 32 << 10;  // of a call, sent with it, at most

constexpr uint32_t kMetNobody = 2;

// A rank's side of a group. Two of everything: a rank is at most one tick ahead of the slowest.
struct BoardGroup {
  alignas(64) std::atomic<uint64_t> key;  // of group and epoch; 0 when free
  // Before the key: of the order of its members and its name, which must be alike.
  std::atomic<uint64_t> identity;
  std::atomic<uint32_t> met;     // not 0: this rank does not wait for the others any more;
                                 // kMetNobody: it gave up, and so must they
  std::atomic<uint32_t> failed;  // not 0: it gave up this call and later ones
  uint32_t failed_code;          // why, and in words in `failure`
  uint32_t failed_left;          // the rank that had left, or all ones
  // How the group is tuned, if this member is its first (tuning.h); before the key.
  std::atomic<uint64_t> tuning[kTuningWords];
  alignas(64) BoardCall calls[2];
  BoardDetail details[2];
  alignas(64) std::byte small[2][kSmallBytes];
  char failure[256];
  char asked[256];  // before the key: "group A of ranks 0, 1 at train.py:12"
};

// A message to a rank of the same host: shown by who sends it, taken by who receives it.
enum class LetterState : uint32_t { none, shown, taking, taken, refused, withdrawn };

struct alignas(64) Letter {
  std::atomic<LetterState> state;  // written last
  std::atomic<uint32_t> to;        // rank
  std::atomic<uint64_t> tag;
  std::atomic<uint64_t> number;  // of the sender's letters: those of one tag are taken in order
  std::atomic<uint64_t> place;   // of its bytes, in the heap
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> wanted;  // by who refused it
};

constexpr size_t kMostLetters = 64;  // that a rank shows at once; more wait their turn

constexpr uint32_t kBoardMagic = 0x44524254;  // "TBRD"
constexpr uint32_t kBoardLayout = 5;
constexpr uint32_t kNobodyLeft = ~0U;
constexpr uint32_t kNotParked = 0;
constexpr uint32_t kParkedForAny = ~0U;

struct Board {
  std::atomic<uint32_t> magic;
  uint32_t layout;
  std::atomic<uint64_t> epoch;  // in which the rest holds; 0 while it is written
  std::atomic<uint64_t> gang;   // hash of the names of job and role
  std::atomic<uint32_t> rank;
  uint32_t world_size;
  uint32_t process;  // as the control page numbers it
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> left;                // not 0: its process took its leave
  alignas(64) std::atomic<uint32_t> parked;  // 1 + the slot it sleeps for, kParkedForAny, or 0
  FlightRecord flight;  // each call in words, for who asks what everybody waits for
  BoardGroup groups[kMostGroups];
  Letter letters[kMostLetters];
};

constexpr uint64_t kBoardBytes = 8 << 20;  // mostly never touched
static_assert(sizeof(Board) <= kBoardBytes);

}  // namespace tutti
