#include "fabric/plan.h"

#include <algorithm>
#include <optional>

#include "base/assert.h"

namespace tutti {

namespace {

constexpr uint32_t kNowhere = ~0U;
// Of those that could send, so many are looked at for the one with least to send: enough for even
// loads, and a plan between thousands of replicas stays linear in their number.
constexpr uint32_t kMostCandidates = 64;
// A gibibyte; the state of any model we know takes a thousandth of it.
constexpr uint64_t kMostChoices = 1 << 28;
// Plans that are used in turn are few: a push, a join, a load.
constexpr size_t kMostPlans = 32;

// Where a piece of the source and one of the target meet, in one dimension.
struct Segment {
  uint64_t begin;
  uint64_t extent;
  uint64_t from_begin;
  uint64_t from_extent;
  uint64_t to_begin;
  uint64_t to_extent;
  uint32_t from_place;  // what the piece adds to its place
  uint32_t to_place;
};

// All of a dimension, ascending. Those of a piece of either side are neighbours.
struct Meetings {
  std::vector<Segment> segments;
  std::vector<uint32_t> of_from;  // by piece: its first, and that past its last
  std::vector<uint32_t> of_to;
};

Meetings meetings_of(const Layout& from, const Layout& to, uint32_t d) {
  Meetings all;
  const uint64_t size = from.shape()[d];
  uint32_t f = 0;
  uint32_t t = 0;
  for (uint64_t at = 0; at < size; at = all.segments.back().begin + all.segments.back().extent) {
    while (from.piece_begin(d, f + 1) <= at) ++f;
    while (to.piece_begin(d, t + 1) <= at) ++t;
    const auto count = static_cast<uint32_t>(all.segments.size());
    all.of_from.resize(f + 1, count);
    all.of_to.resize(t + 1, count);
    const uint64_t from_begin = from.piece_begin(d, f);
    const uint64_t from_end = from.piece_begin(d, f + 1);
    const uint64_t to_begin = to.piece_begin(d, t);
    const uint64_t to_end = to.piece_begin(d, t + 1);
    all.segments.push_back({.begin = at,
                            .extent = std::min(from_end, to_end) - at,
                            .from_begin = from_begin,
                            .from_extent = from_end - from_begin,
                            .to_begin = to_begin,
                            .to_extent = to_end - to_begin,
                            .from_place = from.place_of_piece(d, f),
                            .to_place = to.place_of_piece(d, t)});
  }
  all.of_from.resize(from.pieces(d) + 1, static_cast<uint32_t>(all.segments.size()));
  all.of_to.resize(to.pieces(d) + 1, static_cast<uint32_t>(all.segments.size()));
  return all;
}

}  // namespace

// What two layouts have in common, and how they differ.
struct Plan::Route {
  uint32_t dimensions = 0;
  std::array<Meetings, kMostDimensions> meetings;
  std::array<uint64_t, kMostDimensions> atom_stride{};  // atoms are products of segments
  uint64_t atoms = 1;
  bool by_lane = false;  // each lane moves by itself
  uint32_t reads = 1;    // sources of a copy
  uint32_t targets = 1;  // that each element has
  // What each adds to a place.
  std::vector<uint32_t> from_lane, from_replica, to_lane, to_replica;
  // By place of the source: which replica it is, and where replica 0 of the same is.
  std::vector<uint32_t> replica, first_replica;
  std::vector<uint32_t> own;  // by place of the target: its rank's place in the source
  std::vector<std::pair<uint32_t, uint32_t>> by_host;  // hosts and places of the source, ascending

  Route(const Layout& from, const Layout& to, std::span<const uint32_t> hosts);
  // Whether this lane of a target is zeros.
  bool zeros(const Layout& to, uint32_t lane) const {
    return !by_lane && lane != 0 && to.op() == ReduceOp::sum;
  }
};

Plan::Route::Route(const Layout& from, const Layout& to, std::span<const uint32_t> hosts)
    : dimensions(from.dimensions()),
      by_lane(from.lanes() == to.lanes() && from.op() == to.op()),
      reads(by_lane ? 1 : from.lanes()),
      targets(to.lanes() * to.replicas()) {
  for (uint32_t d = dimensions; d-- > 0;) {
    meetings[d] = meetings_of(from, to, d);
    atom_stride[d] = atoms;
    atoms *= meetings[d].segments.size();
  }
  for (uint32_t i = 0; i < from.lanes(); ++i) from_lane.push_back(from.place_of_lane(i));
  for (uint32_t i = 0; i < from.replicas(); ++i) from_replica.push_back(from.place_of_replica(i));
  for (uint32_t i = 0; i < to.lanes(); ++i) to_lane.push_back(to.place_of_lane(i));
  for (uint32_t i = 0; i < to.replicas(); ++i) to_replica.push_back(to.place_of_replica(i));
  if (from.replicas() == 1) return;
  for (uint32_t place = 0; place < from.mesh().size(); ++place) {
    replica.push_back(from.holding(place).replica);
    first_replica.push_back(place - from_replica[replica.back()]);
    if (!hosts.empty()) by_host.emplace_back(hosts[from.mesh().ranks()[place]], place);
  }
  std::ranges::sort(by_host);
  for (const uint32_t rank : to.mesh().ranks())
    own.push_back(from.mesh().place_of(rank).value_or(kNowhere));
}

// A walk over the atoms of one box.
struct Plan::Walk {
  std::array<uint32_t, kMostDimensions> first{};
  std::array<uint32_t, kMostDimensions> end{};
  std::array<uint32_t, kMostDimensions> at{};
  SliceCopy copy;
  std::vector<uint32_t> senders;  // places, then ranks

  const Segment& segment(const Route& route, uint32_t d) const {
    return route.meetings[d].segments[at[d]];
  }
  bool begin(const Route& route) {
    at = first;
    for (uint32_t d = 0; d < route.dimensions; ++d)
      if (first[d] == end[d]) return false;
    return true;
  }
  bool next(const Route& route) {
    for (uint32_t d = route.dimensions; d-- > 0;) {
      if (++at[d] < end[d]) return true;
      at[d] = first[d];
    }
    return false;
  }
  uint64_t atom(const Route& route) const {
    uint64_t index = 0;
    for (uint32_t d = 0; d < route.dimensions; ++d) index += at[d] * route.atom_stride[d];
    return index;
  }
  uint32_t place(const Route& route, uint32_t Segment::* side) const {
    uint32_t sum = 0;
    for (uint32_t d = 0; d < route.dimensions; ++d) sum += segment(route, d).*side;
    return sum;
  }
  uint64_t elements(const Route& route) const {
    uint64_t all = 1;
    for (uint32_t d = 0; d < route.dimensions; ++d) all *= segment(route, d).extent;
    return all;
  }
  void fill_boxes(const Route& route) {
    copy.slice.dimensions = copy.source.dimensions = copy.target.dimensions = route.dimensions;
    for (uint32_t d = 0; d < route.dimensions; ++d) {
      const Segment& here = segment(route, d);
      copy.slice.begin[d] = here.begin;
      copy.slice.extent[d] = here.extent;
      copy.source.begin[d] = here.from_begin;
      copy.source.extent[d] = here.from_extent;
      copy.target.begin[d] = here.to_begin;
      copy.target.extent[d] = here.to_extent;
    }
  }
  // The atoms that a piece of each dimension has, on one side.
  void choose_box(const Route& route, const Layout::Holding& holding,
                  std::vector<uint32_t> Meetings::* side) {
    for (uint32_t d = 0; d < route.dimensions; ++d) {
      const std::vector<uint32_t>& of = route.meetings[d].*side;
      first[d] = of[holding.piece[d]];
      end[d] = of[holding.piece[d] + 1];
    }
  }
};

// How much everybody sends, while it is decided who does: within its host, and beyond.
class Plan::Balance {
 public:
  Balance(size_t ranks, std::span<const uint32_t> hosts)
      : hosts_(hosts), near_(hosts.empty() ? 0 : ranks), far_(ranks) {}

  void add(const SliceCopy& copy, uint64_t bytes) {
    for (const uint32_t from : copy.from)
      if (from != copy.to) sent(from, copy.to) += bytes;
  }

  // The replica that sends what replica 0 at this place holds to a place of the target.
  uint32_t choose(const Route& route, const Move& move, uint32_t place, uint32_t target,
                  uint64_t bytes) {
    const uint32_t own = route.own[target];
    if (own != kNowhere && route.first_replica[own] == place) return route.replica[own];
    const auto ranks = move.from.mesh().ranks();
    const uint32_t to = move.to.mesh().ranks()[target];
    uint32_t best = kNowhere;
    const auto consider = [&](uint32_t candidate) {
      if (best == kNowhere || sent(ranks[candidate], to) < sent(ranks[best], to)) best = candidate;
    };
    if (!hosts_.empty()) {
      const uint32_t host = hosts_[to];
      const auto here =
          std::ranges::equal_range(route.by_host, host, {}, &std::pair<uint32_t, uint32_t>::first);
      for (const auto& [_, candidate] : here)
        if (route.first_replica[candidate] == place) consider(candidate);
    }
    if (best == kNowhere) {
      const auto replicas = static_cast<uint32_t>(route.from_replica.size());
      for (uint32_t i = 0; i < std::min(replicas, kMostCandidates); ++i)
        consider(place + route.from_replica[(target + i) % replicas]);
    }
    sent(ranks[best], to) += bytes;
    return route.replica[best];
  }

 private:
  uint64_t& sent(uint32_t from, uint32_t to) {
    return (!hosts_.empty() && hosts_[from] == hosts_[to] ? near_ : far_)[from];
  }

  std::span<const uint32_t> hosts_;
  std::vector<uint64_t> near_;  // by rank
  std::vector<uint64_t> far_;
};

Hash128 Plan::hash_of(std::span<const Move> moves, std::span<const uint32_t> hosts) {
  Hasher hasher;
  for (const Move& move : moves) {
    const Hash128 layouts[] = {move.from.hash(), move.to.hash()};
    const uint64_t sizes[] = {move.name.size(), move.types.size()};
    hasher.update(std::as_bytes(std::span(layouts)));
    hasher.update(std::as_bytes(std::span(sizes)));
    hasher.update(as_bytes(move.name));
    hasher.update(std::as_bytes(std::span(move.types)));
  }
  hasher.update(std::as_bytes(hosts));
  return hasher.digest128();
}

static Result<size_t> check_moves(std::span<const Move> moves, std::span<const uint32_t> hosts) {
  uint32_t last = 0;
  for (const Move& move : moves) {
    if (!std::ranges::equal(move.from.shape(), move.to.shape()))
      return fail(Code::invalid, "{} cannot go from {} to {}: layouts of one tensor have one shape",
                  move.name, move.from.text(), move.to.text());
    if (move.types.empty())
      return fail(Code::invalid, "{} has no type; name that of its elements", move.name);
    for (const Layout* side : {&move.from, &move.to})
      last = std::max(last, std::ranges::max(side->mesh().ranks()));
  }
  if (!hosts.empty() && hosts.size() <= last)
    return fail(Code::invalid, "the hosts of {} ranks are told, but rank {} takes part",
                hosts.size(), last);
  return size_t{last} + 1;
}

Result<Plan> Plan::make(std::vector<Move> moves, std::vector<uint32_t> hosts) {
  TRY(const size_t ranks, check_moves(moves, hosts));
  const Hash128 hash = hash_of(moves, hosts);
  Plan plan(std::move(moves), hash);
  if (std::ranges::adjacent_find(hosts, std::ranges::not_equal_to()) == hosts.end()) hosts.clear();

  std::map<std::pair<Hash128, Hash128>, std::pair<uint32_t, uint64_t>> pairs;  // first move, bytes
  uint64_t choices = 0;
  for (uint32_t i = 0; i < plan.moves_.size(); ++i) {
    const Move& move = plan.moves_[i];
    const auto [pair, fresh] = pairs.try_emplace({move.from.hash(), move.to.hash()}, i, 0);
    pair->second.second += plan.element_bytes(i);
    plan.routes_.push_back(fresh ? std::make_shared<Route>(move.from, move.to, hosts)
                                 : plan.routes_[pair->second.first]);
    plan.first_choice_.push_back(choices);
    const Route& route = *plan.routes_.back();
    if (move.from.replicas() > 1) choices += route.atoms * route.targets * route.reads;
    if (choices > kMostChoices)
      return fail(Code::exhausted, "{} moves of {} and more are too many slices for one plan",
                  plan.moves_.size(), move.name);
  }
  plan.choices_.resize(choices);

  // Those that have no choice first: the others make up for them.
  Balance balance(ranks, hosts);
  Walk walk;
  for (const auto& [_, pair] : pairs) {
    const auto [move, bytes] = pair;
    if (plan.moves_[move].from.replicas() != 1) continue;
    const Visitor add = [&, bytes = bytes](const SliceCopy& copy) {
      balance.add(copy, copy.slice.elements() * bytes);
    };
    for (uint32_t place = 0; place < plan.moves_[move].to.mesh().size(); ++place)
      plan.visit_target(move, place, walk, add);
  }
  for (uint32_t i = 0; i < plan.moves_.size(); ++i)
    if (plan.moves_[i].from.replicas() > 1) plan.choose_senders(i, balance);
  return plan;
}

void Plan::choose_senders(uint32_t index, Balance& balance) {
  const Move& move = moves_[index];
  const Route& route = *routes_[index];
  Walk walk;
  for (uint32_t place = 0; place < move.to.mesh().size(); ++place) {
    const Layout::Holding holding = move.to.holding(place);
    if (route.zeros(move.to, holding.lane)) continue;
    walk.choose_box(route, holding, &Meetings::of_to);
    for (bool more = walk.begin(route); more; more = walk.next(route)) {
      const uint64_t bytes = walk.elements(route) * element_bytes(index);
      const uint32_t base = walk.place(route, &Segment::from_place);
      uint32_t* choice = &choices_[first_choice(index, walk.atom(route), holding)];
      for (uint32_t read = 0; read < route.reads; ++read) {
        const uint32_t lane = route.by_lane ? holding.lane : read;
        choice[read] = balance.choose(route, move, base + route.from_lane[lane], place, bytes);
      }
    }
  }
}

uint64_t Plan::element_bytes(uint32_t move) const {
  uint64_t bytes = 0;
  for (const DType type : moves_[move].types) bytes += dtype_bytes(type);
  return bytes;
}

uint64_t Plan::first_choice(uint32_t move, uint64_t atom, const Layout::Holding& target) const {
  const Route& route = *routes_[move];
  const uint64_t which = uint64_t{target.lane} * route.to_replica.size() + target.replica;
  return first_choice_[move] + (atom * route.targets + which) * route.reads;
}

// Ranks that send the walk's atom to one that holds it in the target.
void Plan::find_senders(uint32_t move, const Layout::Holding& target, Walk& walk) const {
  const Route& route = *routes_[move];
  const Layout& from = moves_[move].from;
  walk.senders.clear();
  if (!route.zeros(moves_[move].to, target.lane)) {
    const uint32_t base = walk.place(route, &Segment::from_place);
    const bool chosen = from.replicas() > 1;
    const uint64_t choice = chosen ? first_choice(move, walk.atom(route), target) : 0;
    for (uint32_t read = 0; read < route.reads; ++read) {
      const uint32_t lane = route.by_lane ? target.lane : read;
      const uint32_t replica = chosen ? choices_[choice + read] : 0;
      walk.senders.push_back(
          from.mesh().ranks()[base + route.from_lane[lane] + route.from_replica[replica]]);
    }
  }
  walk.copy.from = walk.senders;
}

void Plan::visit_target(uint32_t move, uint32_t place, Walk& walk, const Visitor& visit) const {
  const Route& route = *routes_[move];
  const Layout& to = moves_[move].to;
  const Layout::Holding holding = to.holding(place);
  walk.copy.move = move;
  walk.copy.to = to.mesh().ranks()[place];
  walk.choose_box(route, holding, &Meetings::of_to);
  for (bool more = walk.begin(route); more; more = walk.next(route)) {
    find_senders(move, holding, walk);
    walk.fill_boxes(route);
    visit(walk.copy);
  }
}

void Plan::visit_source(uint32_t move, uint32_t place, Walk& walk, const Visitor& visit) const {
  const Route& route = *routes_[move];
  const auto& [_, from, to, types] = moves_[move];
  const uint32_t rank = from.mesh().ranks()[place];
  walk.copy.move = move;
  walk.choose_box(route, from.holding(place), &Meetings::of_from);
  for (bool more = walk.begin(route); more; more = walk.next(route)) {
    const uint32_t base = walk.place(route, &Segment::to_place);
    Layout::Holding target;
    walk.fill_boxes(route);
    for (target.lane = 0; target.lane < to.lanes(); ++target.lane) {
      for (target.replica = 0; target.replica < to.replicas(); ++target.replica) {
        find_senders(move, target, walk);
        if (std::ranges::find(walk.senders, rank) == walk.senders.end()) continue;
        walk.copy.to =
            to.mesh().ranks()[base + route.to_lane[target.lane] + route.to_replica[target.replica]];
        visit(walk.copy);
      }
    }
  }
}

void Plan::visit_received(uint32_t rank, const Visitor& visit) const {
  Walk walk;
  for (uint32_t move = 0; move < moves_.size(); ++move)
    if (const auto place = moves_[move].to.mesh().place_of(rank))
      visit_target(move, *place, walk, visit);
}

void Plan::visit_sent(uint32_t rank, const Visitor& visit) const {
  Walk walk;
  for (uint32_t move = 0; move < moves_.size(); ++move)
    if (const auto place = moves_[move].from.mesh().place_of(rank))
      visit_source(move, *place, walk, visit);
}

void Plan::visit_all(const Visitor& visit) const {
  Walk walk;
  for (uint32_t move = 0; move < moves_.size(); ++move)
    for (uint32_t place = 0; place < moves_[move].to.mesh().size(); ++place)
      visit_target(move, place, walk, visit);
}

PlanTotals Plan::totals() const {
  PlanTotals totals;
  std::vector<uint64_t> sent;
  std::vector<uint64_t> received;
  const auto add = [](std::vector<uint64_t>& table, uint32_t rank, uint64_t bytes) {
    if (rank >= table.size()) table.resize(rank + 1);
    return table[rank] += bytes;
  };
  visit_all([&](const SliceCopy& copy) {
    ++totals.copies;
    const uint64_t bytes = copy.slice.elements() * element_bytes(copy.move);
    for (const uint32_t from : copy.from) {
      (from == copy.to ? totals.kept_bytes : totals.moved_bytes) += bytes;
      if (from == copy.to) continue;
      totals.most_sent_bytes = std::max(totals.most_sent_bytes, add(sent, from, bytes));
      totals.most_received_bytes =
          std::max(totals.most_received_bytes, add(received, copy.to, bytes));
    }
  });
  return totals;
}

Result<std::shared_ptr<const Plan>> PlanCache::plan(std::vector<Move> moves,
                                                    std::vector<uint32_t> hosts) {
  const auto known = by_hash_.find(Plan::hash_of(moves, hosts));
  if (known != by_hash_.end()) {
    plans_.splice(plans_.begin(), plans_, known->second);
    return plans_.front();
  }
  TRY(Plan made, Plan::make(std::move(moves), std::move(hosts)));
  ++made_;
  plans_.push_front(std::make_shared<const Plan>(std::move(made)));
  by_hash_[plans_.front()->hash()] = plans_.begin();
  if (plans_.size() > kMostPlans) {
    by_hash_.erase(plans_.back()->hash());
    plans_.pop_back();
  }
  return plans_.front();
}

}  // namespace tutti
