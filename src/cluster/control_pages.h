// The control pages of the ranks of one host, from the side that tells: keeper and agent.
// include/tutti/control_page.h is the other side; docs/control-page.md is the manual.
//
// All pages lie in one arena, at a stride of kControlPageBytes; a place without the magic number is
// none. Keeper and agent map the same arena and write at the same time: the set of the dead of a
// page is written under its sequence lock. A page that somebody else holds is skipped and given
// back to be tried again. A holder that does not let go for long is dead (its writes take about a
// microsecond, or as long as it is not scheduled): then the lock is stolen and the set marked as
// truncated, since the holder may have taken some ranks out to put them elsewhere.
//
// Epoch and `aborted` need no lock: survivors leave a broken epoch at once, whoever holds what.
#pragma once

#include <memory>
#include <vector>

#include "tutti/control_page.h"
#include "world/world.h"

namespace tutti {

constexpr uint64_t kControlPageBytes = TUTTI_CONTROL_BYTES;
constexpr uint64_t kFirstEpoch = 1;  // 0 is no epoch

struct RankRange {
  uint32_t first = 0;
  uint32_t last = 0;
  bool operator==(const RankRange&) const = default;
};
using RankRanges = std::vector<RankRange>;  // ascending, apart from each other by more than a rank

// What to do to every page.
struct ControlChange {
  uint64_t epoch = 0;  // begin this one, if it is newer than the present one
  uint64_t abort = 0;  // this epoch and older ones are over
  RankRanges revived;  // they leave the set of the dead
  RankRanges died;     // they enter it, but for a rank's own page, and the present epoch is over
  uint64_t last_epoch = UINT64_MAX;  // in which those lived: pages in a newer one stay as they are
  bool ends_older = false;  // epochs before `epoch` are over: deaths began it
  RankRanges leaving;  // they are not in `epoch`: their own pages stay in theirs, which is over
  RankRanges gone;     // they enter the set, and end nothing: they are not in this epoch
  RankRanges returned;  // they had died, and are in `epoch` again: who is not in it has lost them
  bool clear = false;   // first of all the set of the dead becomes empty
};

class ControlPages {
 public:
  // Maps all of the arena.
  static Result<std::unique_ptr<ControlPages>> open(World& world, const Handle& arena);

  // A new page; Code::invalid when there can be none at this offset.
  Result<void> initialise(uint64_t offset, uint32_t rank, uint64_t epoch);
  // No page any more.
  void erase(uint64_t offset);
  // nullptr where there is none. Good until anything else is called here.
  tutti_control_page* find(uint64_t offset) const;
  // After find(), for whoever is done with it: there may be very many pages that nobody looks at.
  void rest() const { mapping_->rest(); }

  // Memory::tell_wake() of the lifeline of the page there, when it is no longer as it was seen.
  void tell_lifeline(uint64_t offset, uint32_t seen, WakeTaker& taker, uint64_t tag,
                     Scope& strands) const;

  // Offsets of the pages that were busy: retry with these, and steal when patience has ended.
  using Busy = std::vector<uint64_t>;
  Busy apply(const ControlChange& change);
  Busy retry(const ControlChange& change, const Busy& busy, bool steal);
  // Applies it to all pages, trying for kControlTries at most.
  Task<Result<void>> apply_fully(ControlChange change);

  // The dead of all pages together.
  RankRanges dead() const;

 private:
  ControlPages(World& world, std::unique_ptr<Mapping> mapping)
      : world_(world), mapping_(std::move(mapping)) {}
  bool change(tutti_control_page& page, const ControlChange& change, bool steal);
  tutti_control_page& at(uint64_t offset) const;
  void clear(uint64_t offset);

  World& world_;
  std::unique_ptr<Mapping> mapping_;
};

// Between tries of a page that is busy, and how many until its holder counts as dead.
constexpr Duration kControlPause = 1ms;
constexpr int kControlTries = 200;

// Ranges of those who are back, in a page: whoever slept through more deaths is told of the last.
constexpr uint32_t kMostReturned = 32;

// The set of one page, at one moment; and who was lost to whoever is in an epoch.
RankRanges read_dead(const tutti_control_page& page);
RankRanges read_lost(const tutti_control_page& page, uint64_t epoch);

}  // namespace tutti
