// Who waits for whom among the ranks of a gang, from their flight records and what else is seen of
// them from outside. Plain functions of what was seen: nothing is asked here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/range_set.h"
#include "fabric/flight_reader.h"

namespace tutti {

// A rank as its host's agent saw it.
struct RankSeen {
  enum class Life : uint8_t { running, starting, ended };
  uint32_t rank = 0;
  Life life = Life::running;
  bool moved = false;       // it got on while it was looked at
  bool epoch_over = false;  // it was told that somebody died, and has not joined the next epoch
  char letter = 0;          // of the kernel, for what it does; 0: not known
  double busy = -1;         // processors that it used lately; negative: not known
  int64_t at_ns = 0;        // when, on its host's monotonic clock
  std::optional<SeenFlight> flight;
};

enum class Doing : uint8_t {
  waits,     // in a call of a group, see `wait`
  calls,     // one call after the other
  computes,  // outside of any call
  sleeps,    // as for a file, a socket or a lock
  blocked,   // in the kernel, where nothing interrupts it
  stopped,
  traced,
  starts,
  lost_peer,  // its epoch is over
  left,       // the fabric, in order
  ended,
};

struct StuckWait {
  enum class What : uint8_t { call, making, joining, next_epoch, parcel };
  What what = What::call;
  std::string group;
  uint64_t key = 0;
  SeenCall call;  // as one of those that wait has it
  SeenParcel parcel;
  RangeSet waiting;  // they sleep in it
  RangeSet arrived;  // all members but those that are missing
  RangeSet missing;
  int64_t waited_ns = 0;  // the longest
  // Lines that called, with who did; and who calls something else than the others, in words.
  std::vector<std::pair<std::string, RangeSet>> sites;
  std::vector<std::pair<std::string, RangeSet>> different;
};

struct RankDoing {
  uint32_t rank = 0;
  Doing doing = Doing::computes;
  std::optional<size_t> wait;  // that it sleeps in, also when it has ended there
};

// Ranks of each step wait for some of the next, and those of the last for some of the first.
struct DeadlockStep {
  RangeSet ranks;
  size_t wait = 0;  // in which they do
  RangeSet wanted;  // for whom
};

struct StuckReport {
  std::vector<StuckWait> waits;
  std::vector<std::vector<DeadlockStep>> deadlocks;
  std::vector<RankDoing> ranks;  // as they were given
  // Groups that are over since members called different things: why, and who said so.
  std::vector<std::pair<std::string, RangeSet>> failures;
};

// With `past`, those that have ended count as waiting in the calls in which they ended.
StuckReport find_stuck(const std::vector<RankSeen>& ranks, bool past);

// What it did last in the group with this key; nullptr when it has called nothing of it.
const SeenCall* last_call(const RankSeen& rank, uint64_t key);
// Of any group; nullptr when there was none.
const SeenCall* last_call(const RankSeen& rank);

}  // namespace tutti
