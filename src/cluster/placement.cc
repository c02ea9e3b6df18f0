#include "cluster/placement.h"

#include <algorithm>
#include <functional>

namespace tutti {
namespace {

// Adds a part of one host's share, to the last segment if it goes on from there.
void append(Segments& layout, uint32_t role, NodeId node, uint32_t first, uint32_t count) {
  if (!layout.empty()) {
    cluster::Segment& last = *layout.rbegin();
    const uint32_t before = (last.last_node() - last.first_node()) * last.per_node();
    const uint32_t on_last_node = last.count() - before;
    const bool follows = last.role() == role && last.first() + last.count() == first;
    const bool same_node = follows && last.last_node() == node;
    const bool next_node = follows && last.last_node() + 1 == node &&
                           on_last_node == last.per_node() && count <= last.per_node();
    if (same_node && before == 0) last.set_per_node(on_last_node + count);
    if (next_node || (same_node && on_last_node + count <= last.per_node())) {
      last.set_last_node(node);
      last.set_count(last.count() + count);
      return;
    }
  }
  cluster::Segment& segment = *layout.Add();
  segment.set_role(role);
  segment.set_first_node(node);
  segment.set_last_node(node);
  segment.set_per_node(count);
  segment.set_first(first);
  segment.set_count(count);
}

}  // namespace

uint32_t Placement::slots(NodeId node) const {
  return node < hosts_.size() ? hosts_[node].slots : 0;
}

uint32_t Placement::free(NodeId node) const {
  if (node >= hosts_.size() || !alive_.contains(node) || closed_.contains(node)) return 0;
  return hosts_[node].slots - std::min(hosts_[node].slots, hosts_[node].taken);
}

void Placement::count(NodeId node, Count way) {
  if (node >= hosts_.size() || !alive_.contains(node)) return;
  const uint64_t slots = hosts_[node].slots;
  const uint64_t taken = slots - free(node);
  all_slots_ = way == Count::in ? all_slots_ + slots : all_slots_ - slots;
  all_taken_ = way == Count::in ? all_taken_ + taken : all_taken_ - taken;
}

bool Placement::runs_jobs_of(NodeId node, const std::string& user) const {
  const auto owner = owners_.find(node);
  return owner == owners_.end() || owner->second == user;
}

void Placement::set_host(NodeId node, uint32_t slots, const std::string& only_for) {
  owners_.erase(node);
  if (!only_for.empty()) owners_[node] = only_for;
  count(node, Count::out);
  if (node >= hosts_.size()) hosts_.resize(node + 1);
  hosts_[node].slots = slots;
  count(node, Count::in);
  if (free(node) != 0) roomy_.add(node);
}

void Placement::know_room(NodeId node) {
  const bool had_room = roomy_.contains(node);
  const bool has_room = free(node) != 0;
  if (has_room && !had_room) roomy_.add(node);
  if (!has_room && had_room) roomy_.remove(node);
}

void Placement::set_open(NodeId node, bool open) {
  if (open == !closed_.contains(node)) return;
  count(node, Count::out);
  if (open) {
    closed_.remove(node);
  } else {
    closed_.add(node);
  }
  count(node, Count::in);
  know_room(node);
}

void Placement::set_alive(NodeId node, bool alive) {
  count(node, Count::out);
  if (alive) {
    alive_.add(node);
    count(node, Count::in);
    if (free(node) != 0) roomy_.add(node);
  } else {
    alive_.remove(node);
    roomy_.remove(node);
  }
}

Result<void> Placement::could_hold(const job::Spec& spec) const {
  uint64_t needed = 0;
  for (const job::Role& role : spec.roles())
    if (role.kind() != job::Role::SIDECAR) needed += uint64_t{role.count()} * role.slots();
  uint64_t there = 0;
  uint64_t of_others = 0;
  for (NodeId node = 0; node < hosts_.size(); ++node)
    (runs_jobs_of(node, spec.account()) ? there : of_others) += hosts_[node].slots;
  if (needed <= there) {
    for (const job::Role& role : spec.roles())
      if (role.kind() != job::Role::SIDECAR) TRY_DO(could_hold_alone(spec, role));
    if (place_all(spec, Room::ever, nullptr)) return {};
    return fail(Code::invalid,
                "the job's roles take {} slots together, and the hosts of the cluster have {}, but "
                "not where they are needed: its processes cannot be spread over them; ask for "
                "fewer slots in each process, let hosts join, or start them with more --slots",
                needed, there);
  }
  const std::string others =
      of_others == 0 ? ""
                     : fmt::format(" ({} more are of agents that run as another user than {})",
                                   of_others, spec.account());
  return fail(
      Code::invalid,
      "the job takes {} slots, and all hosts of the cluster together have {}{}; ask for fewer "
      "processes, let hosts join, or start them with more --slots",
      needed, there, others);
}

Result<void> Placement::could_hold_alone(const job::Spec& spec, const job::Role& role) const {
  const uint32_t each = role.slots();
  const uint64_t per_host = role.per_host() != 0 ? role.per_host() : ~0U;
  uint32_t largest = 0;
  uint64_t hosts = 0;
  uint64_t fit = 0;
  for (NodeId node = 1; node < hosts_.size() && fit < role.count(); ++node) {
    if (!is_known(node) || !runs_jobs_of(node, spec.account())) continue;
    ++hosts;
    largest = std::max(largest, hosts_[node].slots);
    fit += std::min<uint64_t>(per_host, each == 0 ? ~0U : hosts_[node].slots / each);
  }
  if (fit >= role.count()) return {};
  if (largest < each)
    return fail(Code::invalid,
                "role '{}' asks for {} slots in each process, and the largest host has {}; ask for "
                "fewer, or start an agent with --slots {}",
                role.name(), each, largest, each);
  const std::string per =
      role.per_host() == 0 ? "" : fmt::format(", at most {} of them on a host", role.per_host());
  return fail(Code::invalid,
              "role '{}' asks for {} processes of {} slots{}, and the {} hosts of the cluster, of "
              "which the largest has {}, could hold {}; ask for fewer processes{}, or let hosts "
              "join",
              role.name(), role.count(), each, per, hosts, largest, fit,
              role.per_host() == 0 ? " or slots" : ", raise per_host");
}

bool Placement::is_alive(NodeId node) const { return alive_.contains(node); }

Result<void> Placement::place_role(const job::Spec& spec, size_t role, Room room,
                                   const RangeSet& candidates, std::vector<Piece> pieces,
                                   const std::map<NodeId, uint32_t>& staying,
                                   std::map<NodeId, uint32_t>& used, Segments& into) const {
  const job::Role& wanted = spec.roles(static_cast<int>(role));
  const uint32_t each = wanted.slots();
  const uint32_t per_host = wanted.per_host() != 0 ? wanted.per_host() : ~0U;
  size_t piece = 0;
  for (const RangeSet::Range& range : candidates.ranges()) {
    for (uint64_t number = range.first; number <= range.last; ++number) {
      const auto node = static_cast<NodeId>(number);
      if (node >= hosts_.size() || !runs_jobs_of(node, spec.account())) continue;
      const auto taken = used.find(node);
      const auto stay = staying.find(node);
      if (room == Room::ever && !is_known(node)) continue;
      const uint32_t counted = room == Room::ever ? slots(node) : free(node);
      const uint32_t left = counted - std::min(counted, taken == used.end() ? 0 : taken->second);
      const uint32_t most = per_host - std::min(per_host, stay == staying.end() ? 0 : stay->second);
      uint32_t fits = each == 0 ? most : std::min(most, left / each);
      while (fits != 0 && piece < pieces.size()) {
        Piece& next = pieces[piece];
        const uint32_t count = std::min(fits, next.count);
        append(into, static_cast<uint32_t>(role), node, next.first, count);
        if (each != 0) used[node] += count * each;
        next.first += count;
        next.count -= count;
        fits -= count;
        if (next.count == 0) ++piece;
      }
      if (piece == pieces.size()) return {};
    }
  }
  uint64_t missing = 0;
  for (; piece < pieces.size(); ++piece) missing += pieces[piece].count;
  return fail(Code::exhausted, "{} of {} processes of role '{}' have no place", missing,
              wanted.count(), wanted.name());
}

RangeSet Placement::hosts_of(const std::string& user) const {
  RangeSet hosts;
  for (const auto& [node, owner] : owners_)
    if (owner == user) hosts.add(node);
  return hosts;
}

// In the order in which they are written or, where that leaves no host for a large process, the
// largest first.
Result<Segments> Placement::place_all(const job::Spec& spec, Room room,
                                      const RangeSet* only) const {
  std::vector<int> order;
  for (int role = 0; role < spec.roles_size(); ++role)
    if (spec.roles(role).kind() != job::Role::SIDECAR) order.push_back(role);
  const auto slots_of = [&](int role) { return spec.roles(role).slots(); };
  const RangeSet known =
      room == Room::ever && hosts_.size() > 1 ? RangeSet(1, hosts_.size() - 1) : RangeSet();
  const RangeSet open = alive_.minus(closed_);
  const auto place_in_order = [&] -> Result<Segments> {
    Segments layout;
    std::map<NodeId, uint32_t> used;
    for (const int role : order) {
      std::vector<Piece> pieces = {{0, spec.roles(role).count()}};
      const RangeSet& there = room == Room::ever              ? known
                              : spec.roles(role).slots() == 0 ? open
                                                              : roomy_;
      const RangeSet some = only == nullptr ? RangeSet() : there.common(*only);
      TRY_DO(place_role(spec, static_cast<size_t>(role), room, only == nullptr ? there : some,
                        std::move(pieces), {}, used, layout));
    }
    return layout;
  };
  auto layout = place_in_order();
  if (layout || std::ranges::is_sorted(order, std::greater(), slots_of)) return layout;
  std::ranges::sort(order, std::greater(),
                    [&](int role) { return std::pair(slots_of(role), -role); });
  auto other = place_in_order();
  if (!other) return layout;
  std::sort(other->begin(), other->end(), [](const auto& one, const auto& two) {
    return std::pair(one.role(), one.first()) < std::pair(two.role(), two.first());
  });
  return other;
}

Result<Segments> Placement::place(const job::Spec& spec, Hosts hosts) {
  const RangeSet theirs = hosts == Hosts::all ? RangeSet() : hosts_of(spec.account());
  TRY(Segments layout, place_all(spec, Room::now, hosts == Hosts::all ? nullptr : &theirs));
  change(spec, layout, nodes_of(layout), true);
  return layout;
}

Result<Segments> Placement::replace(const job::Spec& spec, const Segments& layout,
                                    const RangeSet& processes) {
  const JobNumbers numbers(spec);
  change(spec, layout, nodes_of(layout), false);
  // First what stays, of all roles: nothing that moves may take its room.
  struct Share {
    NodeId node;
    Piece piece;
  };
  const auto roles = static_cast<size_t>(spec.roles_size());
  std::vector<std::vector<Share>> shares(roles);
  std::vector<std::map<NodeId, uint32_t>> staying(roles);
  std::map<NodeId, uint32_t> used;
  for (const cluster::Segment& segment : layout) {
    const uint32_t each = spec.roles(static_cast<int>(segment.role())).slots();
    std::vector<Share>& mine = shares[segment.role()];
    for (uint32_t i = 0; i < segment.count(); ++i) {
      const uint32_t index = segment.first() + i;
      if (processes.contains(numbers.number(segment.role(), index))) continue;
      const NodeId node = segment.first_node() + i / segment.per_node();
      const bool follows = !mine.empty() && mine.back().node == node &&
                           mine.back().piece.first + mine.back().piece.count == index;
      if (!follows) mine.push_back({node, {index, 0}});
      ++mine.back().piece.count;
      ++staying[segment.role()][node];
      used[node] += each;
    }
  }
  Segments next;
  Result<void> placed;
  for (size_t role = 0; role < roles && placed; ++role) {
    const job::Role& wanted = spec.roles(static_cast<int>(role));
    if (wanted.kind() == job::Role::SIDECAR) continue;
    for (const auto& [node, piece] : shares[role])
      append(next, static_cast<uint32_t>(role), node, piece.first, piece.count);
    // A sidecar that is lost is lost with the process it lives beside.
    const RangeSet moving = processes.common(numbers.of_role(role));
    std::vector<Piece> pieces;
    for (const RangeSet::Range& range : moving.ranges())
      pieces.push_back({numbers.index_of(range.first), range.last - range.first + 1});
    if (!pieces.empty())
      placed =
          place_role(spec, role, Room::now, wanted.slots() == 0 ? alive_.minus(closed_) : roomy_,
                     std::move(pieces), staying[role], used, next);
  }
  const Segments& kept = placed ? next : layout;
  change(spec, kept, nodes_of(kept), true);
  if (!placed) return fail(placed.error());
  return next;
}

void Placement::take(const job::Spec& spec, const Segments& layout, const RangeSet& nodes) {
  change(spec, layout, nodes, true);
}

void Placement::give_back(const job::Spec& spec, const Segments& layout, const RangeSet& nodes) {
  change(spec, layout, nodes, false);
}

void Placement::change(const job::Spec& spec, const Segments& layout, const RangeSet& nodes,
                       bool taking) {
  for (const cluster::Segment& segment : layout) {
    const uint32_t each = spec.roles(static_cast<int>(segment.role())).slots();
    uint32_t left = segment.count();
    for (NodeId node = segment.first_node(); node <= segment.last_node(); ++node) {
      const uint32_t here = std::min(left, segment.per_node());
      left -= here;
      if (!nodes.contains(node)) continue;
      count(node, Count::out);
      if (node >= hosts_.size()) hosts_.resize(node + 1);
      uint32_t& taken = hosts_[node].taken;
      taken = taking ? taken + here * each : taken - std::min(taken, here * each);
      count(node, Count::in);
      know_room(node);
    }
  }
}

}  // namespace tutti
