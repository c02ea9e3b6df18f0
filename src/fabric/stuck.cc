#include "fabric/stuck.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tutti {

namespace {

// Of one processor: who uses more computes, and does not only wait.
constexpr double kBusy = 0.2;
// More than these are not worth reading.
constexpr size_t kMostDeadlocks = 4;

using ByRank = std::map<uint32_t, const RankSeen*>;

const SeenGroup* group_of(const RankSeen& rank, uint64_t key) {
  if (!rank.flight) return nullptr;
  for (const SeenGroup& group : rank.flight->groups)
    if (group.key == key) return &group;
  return nullptr;
}

// How far a rank is with a group: its call, and the phase of it.
bool reached(const SeenGroup* group, uint32_t call, FlightPhase phase) {
  if (group == nullptr) return false;
  return group->now.call > call || (group->now.call == call && group->now.phase >= phase);
}

// Whether it has done what somebody waits for who is in this call.
bool has_come(const SeenGroup* group, const SeenCall& waiting) {
  if (waiting.kind == CallKind::none) return group != nullptr;
  switch (waiting.phase) {
    case FlightPhase::begun: return reached(group, waiting.call - 1, FlightPhase::worked);
    case FlightPhase::worked: return reached(group, waiting.call, FlightPhase::worked);
    default: return reached(group, waiting.call, FlightPhase::arrived);
  }
}

bool can_wait(const RankSeen& rank, bool past) {
  if (!rank.flight || rank.moved) return false;
  if (rank.life == RankSeen::Life::ended) return past;
  return rank.life == RankSeen::Life::running;
}

void add_to(std::vector<std::pair<std::string, RangeSet>>& folded, const std::string& text,
            uint32_t rank) {
  for (auto& [known, ranks] : folded)
    if (known == text) return ranks.add(rank);
  folded.emplace_back(text, RangeSet(rank));
}

class Finder {
 public:
  Finder(const std::vector<RankSeen>& ranks, bool past) : ranks_(ranks), past_(past) {
    for (const RankSeen& rank : ranks) by_rank_[rank.rank] = &rank;
  }

  StuckReport find() {
    for (const RankSeen& rank : ranks_) {
      RankDoing& doing = report_.ranks.emplace_back(RankDoing{.rank = rank.rank});
      // Who is stopped waits for a signal, whatever call it is in.
      const bool held = rank.letter == 'T' || rank.letter == 't';
      if (can_wait(rank, past_) && !held) doing.wait = wait_of(rank);
      doing.doing = doing_of(rank, doing.wait.has_value());
      note_failures(rank);
    }
    for (StuckWait& wait : report_.waits) complete(wait);
    find_deadlocks();
    return std::move(report_);
  }

 private:
  Doing doing_of(const RankSeen& rank, bool waits) const {
    if (rank.life == RankSeen::Life::ended) return Doing::ended;
    if (rank.life == RankSeen::Life::starting) return Doing::starts;
    if (rank.letter == 'T') return Doing::stopped;
    if (rank.letter == 't') return Doing::traced;
    if (waits) return Doing::waits;
    if (rank.flight && rank.flight->left) return Doing::left;
    if (rank.epoch_over) return Doing::lost_peer;
    if (rank.letter == 'D') return Doing::blocked;
    const bool computes = rank.busy >= 0 ? rank.busy >= kBusy : rank.letter != 'S';
    if (rank.moved && rank.flight) return Doing::calls;
    return computes ? Doing::computes : Doing::sleeps;
  }

  std::optional<size_t> wait_of(const RankSeen& rank) {
    const SeenFlight& flight = *rank.flight;
    // Whoever lost a peer, or left for that, did so in the call in which it waited.
    if (!past_ && flight.left) return {};
    if (flight.joining) {
      const auto what = rank.epoch_over ? StuckWait::What::next_epoch : StuckWait::What::joining;
      return add(rank, {what, flight.epoch, 0, FlightPhase::none}, nullptr);
    }
    if (flight.parcel && (past_ || !rank.epoch_over)) {
      const uint64_t pair = uint64_t{rank.rank} << 32 | flight.parcel->rank;
      const size_t place =
          add(rank, {StuckWait::What::parcel, pair, 0, FlightPhase::none}, nullptr);
      StuckWait& wait = report_.waits[place];
      wait.parcel = *flight.parcel;
      wait.waited_ns = rank.at_ns - flight.parcel->began_ns;
      members_[place] = RangeSet(rank.rank);
      members_[place].add(flight.parcel->rank);
      return place;
    }
    if (!flight.waits_in || *flight.waits_in >= flight.groups.size()) return {};
    if (!past_ && rank.epoch_over) return {};
    const SeenGroup& group = flight.groups[*flight.waits_in];
    if (!group.now.under_way()) return {};
    const auto what =
        group.now.kind == CallKind::none ? StuckWait::What::making : StuckWait::What::call;
    return add(rank, {what, group.key, group.now.call, group.now.phase}, &group);
  }

  using Key = std::tuple<StuckWait::What, uint64_t, uint32_t, FlightPhase>;
  size_t add(const RankSeen& rank, const Key& key, const SeenGroup* group) {
    const auto [place, is_new] = places_.try_emplace(key, report_.waits.size());
    if (is_new) {
      StuckWait& made = report_.waits.emplace_back();
      made.what = std::get<0>(key);
      made.key = std::get<1>(key);
      made.group = group == nullptr ? "" : group->name;
      if (group != nullptr) made.call = group->now;
      members_.push_back(members_of(rank, group));
    }
    StuckWait& wait = report_.waits[place->second];
    wait.waiting.add(rank.rank);
    if (group == nullptr) return place->second;
    if (group->now.began_ns != 0)
      wait.waited_ns = std::max(wait.waited_ns, rank.at_ns - group->now.began_ns);
    return place->second;
  }

  RangeSet members_of(const RankSeen& rank, const SeenGroup* group) const {
    if (group == nullptr) return {0, rank.flight->world_size - 1};
    if (!group->ranks.empty()) return group->ranks;
    RangeSet members;
    for (const RankSeen& other : ranks_)
      if (group_of(other, group->key) != nullptr) members.add(other.rank);
    return members;
  }

  // Those who are not there, and what the others called.
  void complete(StuckWait& wait) {
    const RangeSet& members = members_[static_cast<size_t>(&wait - report_.waits.data())];
    for (const uint32_t member : members.members()) {
      const auto found = by_rank_.find(member);
      const RankSeen* rank = found == by_rank_.end() ? nullptr : found->second;
      (has_come_to(wait, rank) ? wait.arrived : wait.missing).add(member);
      const SeenGroup* group = rank == nullptr ? nullptr : group_of(*rank, wait.key);
      if (wait.what != StuckWait::What::call || group == nullptr ||
          group->now.call != wait.call.call)
        continue;
      add_to(wait.sites, group->now.site, member);
      if (!group->now.means_the_same(wait.call)) add_to(wait.different, group->now.text(), member);
    }
  }

  static bool has_come_to(const StuckWait& wait, const RankSeen* rank) {
    if (rank == nullptr) return false;
    switch (wait.what) {
      case StuckWait::What::next_epoch: return true;
      case StuckWait::What::parcel: return rank->rank != wait.parcel.rank;
      case StuckWait::What::joining:
        return rank->flight && rank->flight->epoch == wait.key && !rank->flight->left;
      default: return has_come(group_of(*rank, wait.key), wait.call);
    }
  }

  void note_failures(const RankSeen& rank) {
    if (!rank.flight) return;
    for (const SeenGroup& group : rank.flight->groups) {
      if (group.failure.empty()) continue;
      // Each tells of it from its own side.
      const auto [known, is_new] = failures_.try_emplace(group.key, report_.failures.size());
      if (is_new) report_.failures.emplace_back(group.failure, RangeSet());
      report_.failures[known->second].second.add(rank.rank);
    }
  }

  // From each wait to those in which its missing ranks are; a way back is a deadlock.
  void find_deadlocks() {
    std::map<uint32_t, size_t> of_rank;
    for (const RankDoing& doing : report_.ranks)
      if (doing.wait) of_rank[doing.rank] = *doing.wait;
    next_.resize(report_.waits.size());
    for (size_t wait = 0; wait < next_.size(); ++wait)
      for (const uint32_t rank : report_.waits[wait].missing.members())
        if (const auto other = of_rank.find(rank); other != of_rank.end())
          next_[wait][other->second].add(rank);
    marks_.resize(report_.waits.size());
    for (size_t wait = 0; wait < next_.size(); ++wait)
      if (marks_[wait] == Mark::fresh) visit(wait);
  }

  // As deep as there are waits on the way: a few, of different calls.
  void visit(size_t wait) {
    marks_[wait] = Mark::open;
    path_.push_back(wait);
    for (const auto& [next, ranks] : next_[wait]) {
      if (marks_[next] == Mark::fresh) visit(next);
      if (marks_[next] == Mark::open && report_.deadlocks.size() < kMostDeadlocks)
        add_deadlock(next);
    }
    path_.pop_back();
    marks_[wait] = Mark::closed;
  }

  void add_deadlock(size_t first) {
    std::vector<DeadlockStep> steps;
    for (auto wait = std::ranges::find(path_, first); wait != path_.end(); ++wait) {
      const size_t next = std::next(wait) == path_.end() ? first : *std::next(wait);
      steps.push_back(
          {.ranks = report_.waits[*wait].waiting, .wait = *wait, .wanted = next_[*wait][next]});
    }
    report_.deadlocks.push_back(std::move(steps));
  }

  enum class Mark : uint8_t { fresh, open, closed };
  const std::vector<RankSeen>& ranks_;
  bool past_;
  ByRank by_rank_;
  std::map<Key, size_t> places_;
  std::vector<RangeSet> members_;        // of each wait
  std::map<uint64_t, size_t> failures_;  // by group
  std::vector<std::map<size_t, RangeSet>> next_;
  std::vector<Mark> marks_;
  std::vector<size_t> path_;
  StuckReport report_;
};

}  // namespace

StuckReport find_stuck(const std::vector<RankSeen>& ranks, bool past) {
  return Finder(ranks, past).find();
}

const SeenCall* last_call(const RankSeen& rank, uint64_t key) {
  const SeenGroup* group = group_of(rank, key);
  return group == nullptr || group->now.call == 0 ? nullptr : &group->now;
}

const SeenCall* last_call(const RankSeen& rank) {
  const SeenCall* last = nullptr;
  if (!rank.flight) return last;
  for (const SeenGroup& group : rank.flight->groups)
    if (group.now.call != 0 && (last == nullptr || group.now.number > last->number))
      last = &group.now;
  return last;
}

}  // namespace tutti
