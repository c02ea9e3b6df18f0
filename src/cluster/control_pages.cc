#include "cluster/control_pages.h"

#include <algorithm>
#include <atomic>

namespace tutti {
namespace {

// A holder that is running lets go within this many looks, a microsecond or so.
constexpr int kLooks = 64;

uint64_t pack(RankRange range) { return range.first | static_cast<uint64_t>(range.last) << 32; }

RankRange unpack(uint64_t packed) {
  return {tutti_control_first(packed), tutti_control_last(packed)};
}

// What others wrote is put in order first: a holder that died may have left a range twice.
RankRanges in_order(RankRanges ranges) {
  std::erase_if(ranges, [](RankRange range) { return range.first > range.last; });
  std::ranges::sort(ranges, {}, &RankRange::first);
  RankRanges merged;
  for (const RankRange range : ranges) {
    const bool touches = !merged.empty() && range.first <= uint64_t{merged.back().last} + 1;
    if (touches) merged.back().last = std::max(merged.back().last, range.last);
    if (!touches) merged.push_back(range);
  }
  return merged;
}

RankRanges without(const RankRanges& ranges, RankRange gone) {
  RankRanges left;
  for (const RankRange range : ranges) {
    if (range.first < gone.first)
      left.push_back({range.first, std::min(range.last, gone.first - 1)});
    if (range.last > gone.last) left.push_back({std::max(range.first, gone.last + 1), range.last});
  }
  return left;
}

// The lock of a page's set of the dead: its sequence is odd while somebody holds it. Who takes it
// from another goes on to the next odd number, by which the other finds out.
class SetLock {
 public:
  SetLock(tutti_control_page& page, bool steal) : page_(page) {
    for (int look = 0; look < kLooks && !held_; ++look) {
      uint32_t now = __atomic_load_n(&page_.sequence, __ATOMIC_RELAXED);
      const bool free = (now & 1) == 0;
      if (!free && !(steal && look == kLooks - 1)) continue;
      mine_ = now + (free ? 1 : 2);
      held_ = __atomic_compare_exchange_n(&page_.sequence, &now, mine_, false, __ATOMIC_ACQUIRE,
                                          __ATOMIC_RELAXED);
      stolen_ = held_ && !free;
    }
  }
  ~SetLock() {
    if (held_) (void)release();
  }
  SetLock(const SetLock&) = delete;
  SetLock& operator=(const SetLock&) = delete;

  bool held() const { return held_; }
  bool stolen() const { return stolen_; }
  // False when somebody took it from us, who believed us dead.
  bool release() {
    held_ = false;
    uint32_t expected = mine_;
    return __atomic_compare_exchange_n(&page_.sequence, &expected, mine_ + 1, false,
                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  }

 private:
  tutti_control_page& page_;
  uint32_t mine_ = 0;
  bool held_ = false;
  bool stolen_ = false;
};

// Who was lost, and is back since an epoch.
struct Returned {
  uint64_t epoch = 0;
  RankRange ranks;
  bool operator==(const Returned&) const = default;
};

uint64_t* returned_entry(tutti_control_page& page, size_t index) {
  return &page.dead[TUTTI_CONTROL_RANGES - 2 * (index + 1)];
}

std::vector<Returned> load_returned(tutti_control_page& page) {
  std::vector<Returned> all;
  const uint32_t most =
      (TUTTI_CONTROL_RANGES - std::min(page.dead_count, TUTTI_CONTROL_RANGES)) / 2;
  for (uint32_t i = 0; i < std::min(page.returned_count, most); ++i)
    all.push_back({returned_entry(page, i)[0], unpack(returned_entry(page, i)[1])});
  return all;
}

// The latest of them, as many as there is room for.
void write_returned(tutti_control_page& page, std::vector<Returned> all, size_t dead) {
  std::ranges::sort(all, std::ranges::greater{}, &Returned::epoch);
  const size_t room = (TUTTI_CONTROL_RANGES - std::min<size_t>(dead, TUTTI_CONTROL_RANGES)) / 2;
  all.resize(std::min({all.size(), room, size_t{kMostReturned}}));
  for (size_t i = 0; i < all.size(); ++i) {
    __atomic_store_n(&returned_entry(page, i)[0], all[i].epoch, __ATOMIC_RELEASE);
    __atomic_store_n(&returned_entry(page, i)[1], pack(all[i].ranks), __ATOMIC_RELEASE);
  }
  __atomic_store_n(&page.returned_count, static_cast<uint32_t>(all.size()), __ATOMIC_RELEASE);
}

// Readers and those who steal the lock must find no stale range below the count. Every store is a
// release: a reader that sees one of them sees the odd sequence too.
void write_dead(tutti_control_page& page, const RankRanges& ranges) {
  const auto count = static_cast<uint32_t>(std::min<size_t>(ranges.size(), TUTTI_CONTROL_RANGES));
  const uint32_t before = __atomic_load_n(&page.dead_count, __ATOMIC_RELAXED);
  if (count < before) __atomic_store_n(&page.dead_count, count, __ATOMIC_RELEASE);
  for (uint32_t i = 0; i < count; ++i)
    __atomic_store_n(&page.dead[i], pack(ranges[i]), __ATOMIC_RELEASE);
  if (count > before) __atomic_store_n(&page.dead_count, count, __ATOMIC_RELEASE);
  if (ranges.size() > count) __atomic_store_n(&page.dead_truncated, 1, __ATOMIC_RELEASE);
}

// Gives whether it grew.
bool raise_to(uint64_t& number, uint64_t least) {
  uint64_t now = __atomic_load_n(&number, __ATOMIC_ACQUIRE);
  while (now < least) {
    if (__atomic_compare_exchange_n(&number, &now, least, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
      return true;
  }
  return false;
}

// The agent may begin another while we look.
void abort_present_epoch(tutti_control_page& page, uint64_t last) {
  uint64_t present = 0;
  do {
    present = tutti_control_epoch(&page);
    raise_to(page.aborted, std::min(present, last));
  } while (tutti_control_epoch(&page) != present);
}

bool has(const RankRanges& ranges, uint32_t rank) {
  return std::ranges::any_of(
      ranges, [&](RankRange range) { return range.first <= rank && rank <= range.last; });
}

bool kills_another(const ControlChange& change, uint32_t rank) {
  return std::ranges::any_of(
      change.died, [&](RankRange died) { return died.first != rank || died.last != rank; });
}

}  // namespace

RankRanges read_dead(const tutti_control_page& page) { return read_lost(page, UINT64_MAX); }

RankRanges read_lost(const tutti_control_page& page, uint64_t epoch) {
  tutti_control_dead copy;
  tutti_control_read_lost(&page, epoch, &copy);
  RankRanges ranges;
  for (uint32_t i = 0; i < copy.count; ++i) ranges.push_back(unpack(copy.ranges[i]));
  return in_order(std::move(ranges));
}

Result<std::unique_ptr<ControlPages>> ControlPages::open(World& world, const Handle& arena) {
  TRY(const uint64_t size, world.memory().arena_size(arena));
  TRY(auto mapping, world.memory().map(arena, 0, size, true));
  mapping->rest();
  return std::unique_ptr<ControlPages>(new ControlPages(world, std::move(mapping)));
}

tutti_control_page& ControlPages::at(uint64_t offset) const {
  return *reinterpret_cast<tutti_control_page*>(mapping_->bytes().data() + offset);
}

tutti_control_page* ControlPages::find(uint64_t offset) const {
  const uint64_t size = mapping_->bytes().size();
  if (offset % kControlPageBytes != 0 || offset >= size || size - offset < kControlPageBytes)
    return nullptr;
  tutti_control_page& page = at(offset);
  const uint32_t magic = __atomic_load_n(&page.magic, __ATOMIC_ACQUIRE);
  return magic == TUTTI_CONTROL_MAGIC ? &page : nullptr;
}

Result<void> ControlPages::initialise(uint64_t offset, uint32_t rank, uint64_t epoch) {
  const uint64_t size = mapping_->bytes().size();
  if (offset % kControlPageBytes != 0 || offset >= size || size - offset < kControlPageBytes)
    return fail(Code::invalid,
                "no control page can be at {} of an arena of {} bytes; use multiples of {}", offset,
                size, kControlPageBytes);
  clear(offset);
  tutti_control_page& page = at(offset);
  page.layout = TUTTI_CONTROL_LAYOUT;
  page.rank = rank;
  page.epoch = std::max(epoch, kFirstEpoch);
  __atomic_store_n(&page.magic, TUTTI_CONTROL_MAGIC, __ATOMIC_RELEASE);
  rest();
  return {};
}

void ControlPages::erase(uint64_t offset) {
  clear(offset);
  rest();
}

void ControlPages::clear(uint64_t offset) {
  tutti_control_page& page = at(offset);
  __atomic_store_n(&page.magic, 0, __ATOMIC_RELEASE);
  // The word goes on, so that nobody who slept on it sleeps on.
  const uint32_t word = page.word;
  page = {};
  page.word = word + 1;
}

// With the lock.
static void change_set(tutti_control_page& page, const ControlChange& change) {
  std::vector<Returned> returned = load_returned(page);
  RankRanges dead;
  for (uint32_t i = 0; i < std::min(page.dead_count, TUTTI_CONTROL_RANGES); ++i)
    dead.push_back(unpack(page.dead[i]));
  if (change.clear) {
    dead.clear();
    __atomic_store_n(&page.dead_truncated, 0, __ATOMIC_RELEASE);
  }
  dead = in_order(std::move(dead));
  for (const RankRange revived : change.revived) dead = without(dead, revived);
  dead.insert(dead.end(), change.died.begin(), change.died.end());
  dead.insert(dead.end(), change.gone.begin(), change.gone.end());
  dead = without(in_order(std::move(dead)), {page.rank, page.rank});
  for (const RankRange ranks : change.returned)
    if (std::ranges::find(returned, Returned{change.epoch, ranks}) == returned.end())
      returned.push_back({change.epoch, ranks});
  __atomic_store_n(&page.returned_count, 0, __ATOMIC_RELEASE);  // both share one place
  write_dead(page, dead);
  write_returned(page, std::move(returned), dead.size());
}

// False when the page was busy. What needs no lock was done all the same; doing it again is no
// harm.
bool ControlPages::change(tutti_control_page& page, const ControlChange& change, bool steal) {
  const uint32_t rank = page.rank;
  const bool others_died = kills_another(change, rank);
  const bool touches_set = change.clear || !change.revived.empty() || !change.gone.empty() ||
                           !change.returned.empty() || others_died;
  bool complete = true;
  {
    SetLock lock(page, steal && touches_set);
    complete = lock.held() || !touches_set;
    if (tutti_control_epoch(&page) > change.last_epoch) return true;
    if (touches_set && lock.held()) {
      if (lock.stolen()) __atomic_store_n(&page.dead_truncated, 1, __ATOMIC_RELEASE);
      change_set(page, change);
    }
    // Within the lock when we have it: who begins an epoch and then reads the dead, and who marks
    // one as dead and then reads the epoch, cannot both miss the other.
    const uint64_t present = tutti_control_epoch(&page);
    const bool leaves = has(change.leaving, rank);
    if ((change.ends_older || leaves) && present < change.epoch) raise_to(page.aborted, present);
    if (!leaves) raise_to(page.epoch, change.epoch);
    raise_to(page.aborted, change.abort);
    if (others_died) abort_present_epoch(page, change.last_epoch);
    if (lock.held()) complete = lock.release() && complete;
  }
  __atomic_fetch_add(&page.word, 1, __ATOMIC_RELEASE);
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(page.word));
  world_.memory().wake_all(reinterpret_cast<std::atomic<uint32_t>&>(page.word));
  return complete;
}

void ControlPages::tell_lifeline(uint64_t offset, uint32_t seen, WakeTaker& taker, uint64_t tag,
                                 Scope& strands) const {
  const uint64_t word = offset + offsetof(tutti_control_page, lifeline);
  world_.memory().tell_wake(*mapping_, word, seen, taker, tag, strands);
}

ControlPages::Busy ControlPages::apply(const ControlChange& change) {
  Busy busy;
  for (uint64_t offset = 0; offset < mapping_->bytes().size(); offset += kControlPageBytes) {
    tutti_control_page* page = find(offset);
    if (page != nullptr && !this->change(*page, change, false)) busy.push_back(offset);
  }
  rest();
  return busy;
}

ControlPages::Busy ControlPages::retry(const ControlChange& change, const Busy& busy, bool steal) {
  Busy still;
  for (const uint64_t offset : busy) {
    tutti_control_page* page = find(offset);
    if (page != nullptr && !this->change(*page, change, steal)) still.push_back(offset);
  }
  rest();
  return still;
}

Task<Result<void>> ControlPages::apply_fully(ControlChange change) {
  Busy busy = apply(change);
  for (int tries = 1; !busy.empty(); ++tries) {
    CO_TRY_DO(co_await world_.clock().sleep(kControlPause));
    busy = retry(change, busy, tries >= kControlTries);
  }
  co_return {};
}

RankRanges ControlPages::dead() const {
  RankRanges all;
  for (uint64_t offset = 0; offset < mapping_->bytes().size(); offset += kControlPageBytes) {
    const tutti_control_page* page = find(offset);
    if (page == nullptr) continue;
    const RankRanges some = read_dead(*page);
    all.insert(all.end(), some.begin(), some.end());
  }
  rest();
  return in_order(std::move(all));
}

}  // namespace tutti
