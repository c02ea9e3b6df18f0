#include "fabric/wide_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "fabric/fold.h"
#include "world/scope.h"

namespace tutti {

namespace {

// Parts of tags that are not the data's.
constexpr uint64_t kComparePart = uint64_t{1} << 39;
constexpr uint64_t kLearnPart = uint64_t{1} << 38;
constexpr uint64_t kLearnMorePart = kLearnPart + 1;
constexpr uint64_t kWhyPart = kComparePart + 1;  // which nobody sends

// Who compares calls finds out as soon as others stumble over sizes, and tells them.
constexpr Duration kWhyPatience = 200ms;

// What is told to the next host, to find out that it calls something else.
struct Comparison {
  uint64_t signature = 0;
  char text[504] = {};
};

Task<Result<void>> nothing() { co_return Result<void>{}; }

}  // namespace

WideCall::WideCall(WideOptions options)
    : options_(std::move(options)),
      transport_(*options_.transport, options_.ranks),
      hosts_(*options_.hosts),
      call_(options_.call) {}

Rail WideCall::rail() {
  Rail rail{
      .transport = &transport_, .own = host(), .scope = options_.scope, .call = options_.number};
  for (uint32_t host = 0; host < hosts_.hosts(); ++host)
    rail.ranks.push_back(options_.ranks[hosts_.partner(host, place())]);
  return rail;
}

uint32_t WideCall::lanes() const {
  return call_.lanes != 0 ? call_.lanes : static_cast<uint32_t>(options_.ranks.size());
}

// Of what the host's members do together, ours; none when other hosts have fewer members.
Share WideCall::slice() const {
  if (place() >= hosts_.rails()) return {};
  return even_share(call_.elements, element(), hosts_.rails(), place());
}

Share WideCall::share_of(uint32_t member) const {
  return scattered_share(call_.elements, call_.counts, static_cast<uint32_t>(options_.ranks.size()),
                         member);
}

std::vector<LaneRange> WideCall::near_lanes(std::vector<const std::byte*>& inputs) const {
  std::vector<LaneRange> lanes;
  for (uint32_t place = 0; place < options_.near.size(); ++place) {
    const NearMember& member = options_.near[place];
    if (call_.lanes == 0) {
      lanes.push_back({hosts_.members[host()][place], 1});
      inputs.push_back(member.input);
    }
    for (const LanePart& part : member.parts) {
      lanes.push_back(part.lanes);
      inputs.push_back(part.input);
    }
  }
  return lanes;
}

RailWay WideCall::choose(uint64_t bytes, bool reduces) const {
  const auto fits = [&](RailWay way) {
    return reduces ? rail_way_fits(way, lanes(), nodes_)
                   : way == RailWay::ring || way == RailWay::direct || way == RailWay::tree;
  };
  if (options_.way && fits(*options_.way)) return *options_.way;
  const RailWay wanted = (reduces ? options_.reduces : options_.gathers)[rail_class(bytes)];
  return fits(wanted) ? wanted : RailWay::direct;
}

Result<void> WideCall::prepare() {
  switch (call_.kind) {
    case CallKind::all_reduce: return prepare_all_reduce();
    case CallKind::reduce_scatter: return prepare_reduce_scatter();
    case CallKind::broadcast: prepare_broadcast(); return {};
    case CallKind::all_to_all:
    case CallKind::scatter:
    case CallKind::shift: return prepare_exchange();
    case CallKind::reshard: prepare_reshard(); return {};
    default: return {};
  }
}

// Joins our slice of all lanes that this host has.
Result<void> WideCall::prepare_all_reduce() {
  std::vector<const std::byte*> inputs;
  const std::vector<LaneRange> near = near_lanes(inputs);
  TRY(folds_, fold_into_nodes(lanes(), near));
  const Share mine = slice();
  for (const NodeFold& node : folds_) joined_.push_back(join(node, inputs, mine));
  return {};
}

// One node of what this host has; what is one lane is used where it lies.
const std::byte* WideCall::join(const NodeFold& node, const std::vector<const std::byte*>& inputs,
                                Share share) {
  const std::byte* first = inputs[node.sources[0]] + share.first * element();
  if (node.sources.size() == 1 && !is_half(call_.type)) return first;
  scratch_.emplace_back(share.elements * dtype_bytes(carried()));
  join_into(scratch_.back().data(), node, inputs, share);
  return scratch_.back().data();
}

void WideCall::join_into(std::byte* target, const NodeFold& node,
                         const std::vector<const std::byte*>& inputs, Share share) const {
  std::vector<const std::byte*> sources;
  for (const uint32_t source : node.sources)
    sources.push_back(inputs[source] + share.first * element());
  std::byte* targets[] = {target};
  fold(node.tree, {.type = call_.type,
                   .op = call_.op == ReduceOp::mean ? ReduceOp::sum : call_.op,
                   .sources = sources,
                   .targets = targets,
                   .elements = share.elements,
                   .widened = true});
}

// Joins what this host has of the shares of those members elsewhere that we are to serve.
Result<void> WideCall::prepare_reduce_scatter() {
  std::vector<const std::byte*> inputs;
  const std::vector<LaneRange> near = near_lanes(inputs);
  TRY(folds_, fold_into_nodes(lanes(), near));
  for (uint32_t other = 0; other < hosts_.hosts(); ++other) {
    if (other == host()) continue;
    for (const uint32_t member : hosts_.served_by(options_.index, other)) {
      const Share theirs = share_of(member);
      const uint64_t bytes = theirs.elements * dtype_bytes(carried());
      Given given{.member = member, .nodes = std::vector<std::byte>(folds_.size() * bytes)};
      for (size_t i = 0; i < folds_.size(); ++i)
        join_into(given.nodes.data() + i * bytes, folds_[i], inputs, theirs);
      given_.push_back(std::move(given));
    }
  }
  return {};
}

void WideCall::prepare_broadcast() {
  if (near(call_.root)) copy_near(call_.root, 0, 0, call_.elements);
}

// What members of this host give each other is copied at once; the rest is put down as messages.
Result<void> WideCall::prepare_exchange() {
  const auto size = static_cast<uint32_t>(options_.ranks.size());
  const uint32_t own = options_.index;
  const auto send = [&](uint32_t to, uint64_t first, uint64_t elements) {
    moves_.push_back({.rank = options_.ranks[to],
                      .out = true,
                      .from = {near_member(own).input + first * element(), elements * element()}});
  };
  const auto receive = [&](uint32_t from, uint64_t first, uint64_t elements) {
    moves_.push_back({.rank = options_.ranks[from],
                      .into = {options_.output + first * element(), elements * element()}});
  };
  if (call_.kind == CallKind::shift) {
    const auto away = [&](int64_t distance) {
      const int64_t at = (own + distance) % int64_t{size};
      return static_cast<uint32_t>((at + size) % size);
    };
    const uint32_t to = away(call_.distance);
    const uint32_t from = away(-int64_t{call_.distance});
    if (!near(to)) send(to, 0, call_.elements);
    if (near(from)) copy_near(from, 0, 0, call_.elements);
    if (!near(from)) receive(from, 0, call_.elements);
    return {};
  }
  if (call_.kind == CallKind::scatter) {
    if (near(call_.root)) copy_near(call_.root, own * call_.elements, 0, call_.elements);
    if (!near(call_.root)) receive(call_.root, 0, call_.elements);
    for (uint32_t member = 0; own == call_.root && member < size; ++member)
      if (!near(member)) send(member, member * call_.elements, call_.elements);
    return {};
  }
  uint64_t sent = 0;
  uint64_t target = 0;
  for (uint32_t member = 0; member < size; ++member) {
    const uint64_t out = call_.counts.empty() ? call_.elements : call_.counts[member];
    const uint64_t in = call_.incoming.empty() ? call_.elements : call_.incoming[member];
    if (near(member)) {
      const std::vector<uint64_t>& theirs = near_member(member).counts;
      const Share given =
          theirs.empty() ? Share{own * call_.elements, call_.elements} : counted_share(theirs, own);
      if (given.elements != in)
        return fail(Code::invalid,
                    "rank {} sends {} elements to rank {}, which expects {}, in all_to_all at {}",
                    options_.ranks[member], given.elements, options_.ranks[own], in, call_.site);
      copy_near(member, given.first, target, in);
    } else {
      send(member, sent, out);
      receive(member, target, in);
    }
    sent += out;
    target += in;
  }
  return {};
}

void WideCall::prepare_reshard() {
  FarReshardOptions reshard{.rail = rail(),
                            .work = options_.resharding,
                            .ranks = options_.ranks,
                            .near = std::vector<const std::byte*>(options_.ranks.size()),
                            .index = options_.index,
                            .heap = options_.heap,
                            .inputs = call_.inputs,
                            .outputs = call_.outputs,
                            .signature = options_.signature,
                            .text = options_.text};
  for (const uint32_t member : hosts_.members[host()])
    reshard.near[member] = near_member(member).input;
  reshard.table = static_cast<uint64_t>(near_member(options_.index).input - options_.heap);
  far_ = std::make_unique<FarReshard>(std::move(reshard));
}

void WideCall::copy_near(uint32_t from, uint64_t source_element, uint64_t target_element,
                         uint64_t elements) {
  const std::byte* source = near_member(from).input + source_element * element();
  std::byte* target = options_.output + target_element * element();
  if (source != target && elements != 0) copy_bytes(target, source, elements * element(), false);
}

// To the outputs of the other members of this host.
void WideCall::push(uint64_t first, uint64_t elements) {
  if (call_.shared_output || elements == 0) return;
  const std::byte* from = options_.output + first * element();
  for (uint32_t place = 0; place < options_.near.size(); ++place) {
    std::byte* output = options_.near[place].output;
    if (place == this->place() || output == nullptr) continue;
    copy_bytes(output + first * element(), from, elements * element(), false);
  }
}

// That hosts call different things says more than what follows from it, such as sizes that differ.
Task<Result<void>> WideCall::run() {
  std::optional<Result<void>> worked;
  Scope scope;
  scope.spawn(compare_calls());
  scope.spawn(detail::keep_result(work(), worked));
  auto joined = co_await scope.join();
  left_ = transport_.left_in(options_.scope);
  if (!joined) co_return joined;
  if (!*worked && worked->error().code() == Code::invalid) {
    auto why = co_await hear_why();
    if (!why && why.error().code() != Code::deadline) co_return why;
  }
  co_return std::move(*worked);
}

// Sizes that differ are seen at both ends, also by those whose neighbours call the same: another
// knows why, and refuses the scope everywhere.
Task<Result<void>> WideCall::hear_why() {
  const uint32_t own = options_.ranks[options_.index];
  const Tag tag = rail().tag(kWhyPart);
  const Instant by = options_.clock->now() + kWhyPatience;
  auto refused = options_.transport->receive(own, tag, MutableBytes());
  auto why = co_await with_deadline(*options_.clock, by, std::move(refused));
  co_return why;
}

Task<Result<void>> WideCall::compare_calls() {
  if (place() != 0) co_return Result<void>{};
  const Rail all = rail();
  Comparison ours{.signature = options_.signature};
  std::memcpy(ours.text, options_.text.data(),
              std::min(options_.text.size(), sizeof ours.text - 1));
  Comparison theirs;
  const uint32_t before = (all.own + all.size() - 1) % all.size();
  std::vector<RailMove> moves;
  moves.push_back({.rank = all.ranks[(all.own + 1) % all.size()],
                   .part = kComparePart,
                   .out = true,
                   .from = std::as_bytes(std::span(&ours, 1))});
  moves.push_back({.rank = all.ranks[before],
                   .part = kComparePart,
                   .into = std::as_writable_bytes(std::span(&theirs, 1))});
  auto told = co_await rail_moves(all, std::move(moves));
  if (!told) co_return told;
  if (theirs.signature == ours.signature) co_return Result<void>{};
  theirs.text[sizeof theirs.text - 1] = '\0';
  co_return fail(Code::invalid, "ranks do not call the same: rank {} {}, rank {} {}",
                 options_.ranks[options_.index], options_.text, all.ranks[before], theirs.text);
}

Task<Result<void>> WideCall::work() {
  switch (call_.kind) {
    case CallKind::barrier:
      if (place() == 0) return rail_barrier(rail());
      return nothing();
    case CallKind::all_reduce: return all_reduce();
    case CallKind::reduce_scatter: return reduce_scatter();
    case CallKind::broadcast: return broadcast();
    case CallKind::all_gather: return all_gather();
    case CallKind::gather: return gather();
    case CallKind::reshard: return far_->run();
    default: return exchange();
  }
}

// Which nodes other hosts have: known where every member is one lane, else they tell.
Task<Result<void>> WideCall::learn_nodes() {
  nodes_.assign(hosts_.hosts(), {});
  for (const NodeFold& fold : folds_) nodes_[host()].push_back(fold.node);
  if (call_.lanes == 0) {
    for (uint32_t other = 0; other < hosts_.hosts(); ++other) {
      if (other == host()) continue;
      std::vector<LaneRange> theirs;
      for (const uint32_t member : hosts_.members[other]) theirs.push_back({member, 1});
      CO_TRY(auto folds, fold_into_nodes(lanes(), theirs));
      for (const NodeFold& fold : folds) nodes_[other].push_back(fold.node);
    }
    co_return order_nodes();
  }
  const uint64_t own_count = nodes_[host()].size();
  std::vector<uint64_t> counts(hosts_.hosts());
  for (const bool lists : {false, true}) {
    std::vector<RailMove> moves;
    const uint64_t part = lists ? kLearnMorePart : kLearnPart;
    for (uint32_t other = 0; other < hosts_.hosts(); ++other) {
      if (other == host()) continue;
      for (const uint32_t member : hosts_.served_by(options_.index, other))
        moves.push_back({.rank = options_.ranks[member],
                         .part = part,
                         .out = true,
                         .from = lists ? std::as_bytes(std::span(nodes_[host()]))
                                       : std::as_bytes(std::span(&own_count, 1))});
      if (lists && counts[other] > lanes())
        co_return fail(Code::invalid, "host {} says it has {} of {} lanes", other, counts[other],
                       lanes());
      if (lists) nodes_[other].resize(counts[other]);
      moves.push_back({.rank = options_.ranks[hosts_.partner(other, place())],
                       .part = part,
                       .into = lists ? std::as_writable_bytes(std::span(nodes_[other]))
                                     : std::as_writable_bytes(std::span(&counts[other], 1))});
    }
    auto told = co_await rail_moves(rail(), std::move(moves));
    if (!told) co_return told;
  }
  co_return order_nodes();
}

Result<void> WideCall::order_nodes() {
  for (uint32_t from = 0; from < nodes_.size(); ++from)
    for (uint32_t node = 0; node < nodes_[from].size(); ++node) order_.emplace_back(from, node);
  std::ranges::sort(order_, {}, [&](const auto& at) { return nodes_[at.first][at.second].first; });
  std::vector<LaneRange> ranges;
  for (const auto& [from, node] : order_) ranges.push_back(nodes_[from][node]);
  TRY(tree_, FoldTree::over(lanes(), ranges));
  return {};
}

// How much every member brings along, where they may differ.
Task<Result<void>> WideCall::learn_counts() {
  counts_.assign(options_.ranks.size(), 0);
  std::vector<std::vector<uint64_t>> by_host(hosts_.hosts());
  for (const NearMember& member : options_.near) by_host[host()].push_back(member.elements);
  std::vector<RailMove> moves;
  for (uint32_t other = 0; other < hosts_.hosts(); ++other) {
    if (other == host()) continue;
    by_host[other].resize(hosts_.count(other));
    for (const uint32_t member : hosts_.served_by(options_.index, other))
      moves.push_back({.rank = options_.ranks[member],
                       .part = kLearnPart,
                       .out = true,
                       .from = std::as_bytes(std::span(by_host[host()]))});
    moves.push_back({.rank = options_.ranks[hosts_.partner(other, place())],
                     .part = kLearnPart,
                     .into = std::as_writable_bytes(std::span(by_host[other]))});
  }
  auto told = co_await rail_moves(rail(), std::move(moves));
  if (!told) co_return told;
  for (uint32_t member = 0; member < counts_.size(); ++member)
    counts_[member] = by_host[hosts_.host_of[member]][hosts_.place_of[member]];
  co_return Result<void>{};
}

Task<Result<void>> WideCall::all_reduce() {
  auto learned = co_await learn_nodes();
  if (!learned) co_return learned;
  const Share mine = slice();
  if (mine.elements == 0) co_return Result<void>{};
  std::byte* own = options_.output + mine.first * element();
  if (is_half(call_.type)) widened_.resize(mine.elements);
  RailReduction reduction{
      .type = carried(),
      .op = call_.op,
      .lanes = lanes(),
      .nodes = nodes_,
      .sources = joined_,
      .target = is_half(call_.type) ? reinterpret_cast<std::byte*>(widened_.data()) : own,
      .elements = mine.elements,
      .way = choose(mine.elements * element(), true)};
  auto reduced = co_await rail_all_reduce(rail(), std::move(reduction));
  if (!reduced) co_return reduced;
  if (is_half(call_.type)) narrow_halves(call_.type, own, widened_.data(), mine.elements);
  push(mine.first, mine.elements);
  co_return Result<void>{};
}

Task<Result<void>> WideCall::reduce_scatter() {
  auto learned = co_await learn_nodes();
  if (!learned) co_return learned;
  const uint64_t carried_bytes = dtype_bytes(carried());
  const uint64_t own_bytes = share_of(options_.index).elements * carried_bytes;
  std::vector<RailMove> moves;
  for (const Given& given : given_)
    if (!given.nodes.empty())
      moves.push_back({.rank = options_.ranks[given.member], .out = true, .from = given.nodes});
  received_.resize(hosts_.hosts());
  for (uint32_t other = 0; other < hosts_.hosts(); ++other) {
    received_[other].resize(other == host() ? 0 : nodes_[other].size() * own_bytes);
    if (!received_[other].empty())
      moves.push_back(
          {.rank = options_.ranks[hosts_.partner(other, place())], .into = received_[other]});
  }
  auto moved = co_await rail_moves(rail(), std::move(moves));
  co_return moved;
}

Task<Result<void>> WideCall::broadcast() {
  const Share mine = slice();
  if (mine.elements == 0) co_return Result<void>{};
  const uint32_t root_host = hosts_.host_of[call_.root];
  // The root's own bytes are only read.
  std::byte* data =
      root_host == host() ? const_cast<std::byte*>(near_member(call_.root).input) : options_.output;
  const MutableBytes bytes{data + mine.first * element(), mine.elements * element()};
  auto told = co_await rail_broadcast(rail(), root_host, bytes, choose(bytes.size(), false));
  if (!told) co_return told;
  if (root_host != host()) push(mine.first, mine.elements);
  co_return Result<void>{};
}

// Of all members of this host, whose outputs we may write.
Result<void> WideCall::check_room(uint64_t elements) const {
  for (const uint32_t member : hosts_.members[host()]) {
    const bool written = call_.kind == CallKind::all_gather || member == options_.index;
    if (written && near_member(member).room < elements)
      return fail(Code::invalid, "{} gives {} elements, and the output of rank {} has room for {}",
                  call_kind_name(call_.kind), elements, options_.ranks[member],
                  near_member(member).room);
  }
  return {};
}

// A member's share goes to one member of each other host, which stores it to all of them.
Task<Result<void>> WideCall::all_gather() {
  auto learned = co_await learn_counts();
  if (!learned) co_return learned;
  std::vector<uint64_t> firsts(counts_.size());
  std::exclusive_scan(counts_.begin(), counts_.end(), firsts.begin(), uint64_t{0});
  const auto room = [&](uint32_t member) {
    return MutableBytes{options_.output + firsts[member] * element(), counts_[member] * element()};
  };
  const uint64_t total = firsts.back() + counts_.back();
  CO_TRY_DO(check_room(total));
  for (const uint32_t member : hosts_.members[host()])
    if (!call_.shared_output || member == options_.index)
      copy_near(member, 0, firsts[member], counts_[member]);

  const RailWay way = choose(total * element(), false);
  if (hosts_.even() && way == RailWay::ring) {
    std::vector<MutableBytes> pieces;
    for (uint32_t other = 0; other < hosts_.hosts(); ++other)
      pieces.push_back(room(hosts_.members[other][place()]));
    auto gathered = co_await rail_all_gather(rail(), std::move(pieces), way);
    if (!gathered) co_return gathered;
  } else {
    std::vector<RailMove> moves;
    for (uint32_t other = 0; other < hosts_.hosts(); ++other) {
      if (other == host()) continue;
      if (counts_[options_.index] != 0)
        moves.push_back(
            {.rank = options_.ranks[hosts_.partner(other, place())],
             .out = true,
             .from = {near_member(options_.index).input, counts_[options_.index] * element()}});
      for (const uint32_t member : hosts_.served_by(options_.index, other))
        if (counts_[member] != 0)
          moves.push_back({.rank = options_.ranks[member], .into = room(member)});
    }
    auto moved = co_await rail_moves(rail(), std::move(moves));
    if (!moved) co_return moved;
  }
  for (uint32_t other = 0; other < hosts_.hosts(); ++other)
    if (other != host())
      for (const uint32_t member : hosts_.served_by(options_.index, other))
        push(firsts[member], counts_[member]);
  co_return Result<void>{};
}

Task<Result<void>> WideCall::gather() {
  const bool root = options_.index == call_.root;
  std::vector<RailMove> counted;
  std::vector<RailMove> moves;
  const uint64_t own = call_.elements;
  counts_.assign(options_.ranks.size(), 0);
  if (!near(call_.root)) {
    const uint32_t to = options_.ranks[call_.root];
    counted.push_back(
        {.rank = to, .part = kLearnPart, .out = true, .from = std::as_bytes(std::span(&own, 1))});
    if (own != 0)
      moves.push_back(
          {.rank = to, .out = true, .from = {near_member(options_.index).input, own * element()}});
  }
  for (uint32_t member = 0; root && member < counts_.size(); ++member) {
    if (near(member)) counts_[member] = near_member(member).elements;
    if (!near(member))
      counted.push_back({.rank = options_.ranks[member],
                         .part = kLearnPart,
                         .into = std::as_writable_bytes(std::span(&counts_[member], 1))});
  }
  auto told = co_await rail_moves(rail(), std::move(counted));
  if (!told) co_return told;
  if (root) {
    CO_TRY_DO(check_room(std::accumulate(counts_.begin(), counts_.end(), uint64_t{0})));
  }
  uint64_t first = 0;
  for (uint32_t member = 0; root && member < counts_.size(); ++member) {
    const uint64_t elements = counts_[member];
    if (near(member)) copy_near(member, 0, first, elements);
    if (!near(member) && elements != 0)
      moves.push_back({.rank = options_.ranks[member],
                       .into = {options_.output + first * element(), elements * element()}});
    first += elements;
  }
  auto moved = co_await rail_moves(rail(), std::move(moves));
  co_return moved;
}

Task<Result<void>> WideCall::exchange() {
  std::erase_if(moves_,
                [](const RailMove& move) { return move.from.empty() && move.into.empty(); });
  auto moved = co_await rail_moves(rail(), std::move(moves_));
  co_return moved;
}

// Of a reduce_scatter: our share, of all hosts' nodes. In the caller's thread, as an update is.
void WideCall::finish() {
  if (call_.kind != CallKind::reduce_scatter) return;
  const Share mine = share_of(options_.index);
  const uint64_t bytes = mine.elements * dtype_bytes(carried());
  std::vector<const std::byte*> inputs;
  (void)near_lanes(inputs);
  for (const NodeFold& node : folds_) joined_.push_back(join(node, inputs, mine));
  std::vector<const std::byte*> sources;
  for (const auto& [from, node] : order_)
    sources.push_back(from == host() ? joined_[node] : received_[from].data() + node * bytes);
  std::vector<float> widened(is_half(call_.type) ? mine.elements : 0);
  std::byte* targets[] = {is_half(call_.type) ? reinterpret_cast<std::byte*>(widened.data())
                                              : options_.output};
  fold(tree_, {.type = carried(),
               .op = call_.op,
               .divisor = lanes(),
               .sources = sources,
               .targets = targets,
               .elements = mine.elements});
  if (is_half(call_.type))
    narrow_halves(call_.type, options_.output, widened.data(), mine.elements);
  if (call_.update) call_.update(0, options_.output, mine.elements);
}

}  // namespace tutti
