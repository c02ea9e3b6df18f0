#include "fabric/rail.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "fabric/fold.h"
#include "fabric/share.h"
#include "world/scope.h"

namespace tutti {

namespace {

// Of a vector, reduced or forwarded at a time, while the next ones are on their way.
constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint32_t kBlocksAtOnce = 3;

// Parts of a tag: a block, a node and a phase.
uint64_t part_of(uint64_t block, uint64_t node, uint64_t phase) {
  return block << 14 | node << 1 | phase;
}

Share block_of(Share piece, uint64_t block_elements, uint64_t block) {
  const uint64_t skipped = std::min(piece.elements, block * block_elements);
  return {piece.first + skipped, std::min(block_elements, piece.elements - skipped)};
}

ReduceOp joining(ReduceOp op) { return op == ReduceOp::mean ? ReduceOp::sum : op; }

Bytes view(const std::byte* data, Share span, uint64_t element) {
  return {data + span.first * element, span.elements * element};
}
MutableBytes view(std::byte* data, Share span, uint64_t element) {
  return {data + span.first * element, span.elements * element};
}

Task<Result<void>> all_of(std::vector<Task<Result<void>>> tasks) {
  Scope scope;
  for (auto& task : tasks) scope.spawn(std::move(task));
  auto joined = co_await scope.join();
  co_return joined;
}

// Two operands, the one of the lower lanes first.
void join_two(const RailReduction& work, const std::byte* lower, const std::byte* upper,
              std::byte* target, uint64_t elements) {
  static const FoldTree kPair = FoldTree::plain(2);
  const std::byte* sources[] = {lower, upper};
  std::byte* targets[] = {target};
  fold(kPair, {.type = work.type,
               .op = joining(work.op),
               .sources = sources,
               .targets = targets,
               .elements = elements});
}

void divide(const RailReduction& work, std::byte* target, uint64_t elements) {
  static const FoldTree kSingle = FoldTree::plain(1);
  if (work.op != ReduceOp::mean) return;
  const std::byte* sources[] = {target};
  std::byte* targets[] = {target};
  fold(kSingle, {.type = work.type,
                 .op = work.op,
                 .divisor = work.lanes,
                 .sources = sources,
                 .targets = targets,
                 .elements = elements});
}

// Everybody owns a piece of the vector: gets it from all, joins it, and gives it to all.
class Direct {
 public:
  Direct(const Rail& rail, const RailReduction& work, FoldTree tree,
         std::vector<std::pair<uint32_t, uint32_t>> order)
      : rail_(rail),
        work_(work),
        tree_(std::move(tree)),
        order_(std::move(order)),
        element_(dtype_bytes(work.type)),
        block_elements_(kBlockBytes / element_) {}

  Task<Result<void>> run() {
    std::vector<Task<Result<void>>> workers;
    for (uint32_t i = 0; i < kBlocksAtOnce; ++i) workers.push_back(every_third(i));
    auto done = co_await all_of(std::move(workers));
    co_return done;
  }

 private:
  Share piece(uint32_t host) const {
    return even_share(work_.elements, element_, rail_.size(), host);
  }
  Share block(uint32_t host, uint64_t index) const {
    return block_of(piece(host), block_elements_, index);
  }

  Task<Result<void>> every_third(uint64_t first) {
    // The first piece is the largest.
    const uint64_t blocks = (piece(0).elements + block_elements_ - 1) / block_elements_;
    std::vector<std::byte> staging;
    for (uint64_t index = first; index < blocks; index += kBlocksAtOnce) {
      auto gathered = co_await take_in(index, staging);
      if (!gathered) co_return gathered;
      join(index, staging);
      auto given = co_await give_out(index);
      if (!given) co_return given;
    }
    co_return Result<void>{};
  }

  Task<Result<void>> take_in(uint64_t index, std::vector<std::byte>& staging) {
    const Share mine = block(rail_.own, index);
    staging.resize(order_.size() * mine.elements * element_);
    std::vector<RailMove> moves;
    for (uint32_t host = 0; host < rail_.size(); ++host) {
      if (host == rail_.own) continue;
      const Share theirs = block(host, index);
      if (theirs.elements == 0) continue;
      for (uint32_t node = 0; node < work_.sources.size(); ++node)
        moves.push_back({.rank = rail_.ranks[host],
                         .part = part_of(index, node, 0),
                         .out = true,
                         .from = view(work_.sources[node], theirs, element_)});
    }
    for (size_t place = 0; place < order_.size() && mine.elements != 0; ++place) {
      const auto [host, node] = order_[place];
      if (host == rail_.own) continue;
      moves.push_back(
          {.rank = rail_.ranks[host],
           .part = part_of(index, node, 0),
           .into = {staging.data() + place * mine.elements * element_, mine.elements * element_}});
    }
    auto moved = co_await rail_moves(rail_, std::move(moves));
    co_return moved;
  }

  void join(uint64_t index, const std::vector<std::byte>& staging) const {
    const Share mine = block(rail_.own, index);
    if (mine.elements == 0) return;
    std::vector<const std::byte*> sources;
    for (size_t place = 0; place < order_.size(); ++place) {
      const auto [host, node] = order_[place];
      sources.push_back(host == rail_.own ? work_.sources[node] + mine.first * element_
                                          : staging.data() + place * mine.elements * element_);
    }
    std::byte* targets[] = {work_.target + mine.first * element_};
    fold(tree_, {.type = work_.type,
                 .op = work_.op,
                 .divisor = work_.lanes,
                 .sources = sources,
                 .targets = targets,
                 .elements = mine.elements});
  }

  Task<Result<void>> give_out(uint64_t index) {
    std::vector<RailMove> moves;
    const Share mine = block(rail_.own, index);
    for (uint32_t host = 0; host < rail_.size(); ++host) {
      if (host == rail_.own) continue;
      const Share theirs = block(host, index);
      if (mine.elements != 0)
        moves.push_back({.rank = rail_.ranks[host],
                         .part = part_of(index, 0, 1),
                         .out = true,
                         .from = view(work_.target, mine, element_)});
      if (theirs.elements != 0)
        moves.push_back({.rank = rail_.ranks[host],
                         .part = part_of(index, 0, 1),
                         .into = view(work_.target, theirs, element_)});
    }
    auto moved = co_await rail_moves(rail_, std::move(moves));
    co_return moved;
  }

  const Rail& rail_;
  const RailReduction& work_;
  FoldTree tree_;
  std::vector<std::pair<uint32_t, uint32_t>> order_;  // hosts and their nodes, by lane
  uint64_t element_;
  uint64_t block_elements_;
};

Task<Result<void>> reduce_direct(const Rail& rail, const RailReduction& work) {
  std::vector<std::pair<uint32_t, uint32_t>> order;
  for (uint32_t host = 0; host < work.nodes.size(); ++host)
    for (uint32_t node = 0; node < work.nodes[host].size(); ++node) order.emplace_back(host, node);
  const auto lanes_of = [&](const std::pair<uint32_t, uint32_t>& place) {
    return work.nodes[place.first][place.second];
  };
  std::ranges::sort(order, {}, [&](const auto& place) { return lanes_of(place).first; });
  std::vector<LaneRange> nodes;
  for (const auto& place : order) nodes.push_back(lanes_of(place));
  CO_TRY(FoldTree tree, FoldTree::over(work.lanes, nodes));
  Direct direct(rail, work, std::move(tree), std::move(order));
  auto done = co_await direct.run();
  co_return done;
}

// Neighbours first: that is the order of the tree.
Task<Result<void>> reduce_by_halving(const Rail& rail, const RailReduction& work) {
  const uint64_t element = dtype_bytes(work.type);
  const std::byte* current = work.sources[0];
  Share range{0, work.elements};
  std::vector<Share> ranges;
  std::vector<std::byte> staging(even_share(work.elements, element, 2, 0).elements * element);
  for (uint32_t bit = 1; bit < rail.size(); bit *= 2) {
    const uint32_t partner = rail.own ^ bit;
    const bool lower = (rail.own & bit) == 0;
    const Share left = even_share(range.elements, element, 2, 0);
    const Share halves[] = {{range.first, left.elements},
                            {range.first + left.elements, range.elements - left.elements}};
    const Share kept = halves[lower ? 0 : 1];
    const Share given = halves[lower ? 1 : 0];
    ranges.push_back(range);
    std::vector<RailMove> moves;
    moves.push_back({.rank = rail.ranks[partner],
                     .part = part_of(bit, 0, 0),
                     .out = true,
                     .from = view(current, given, element)});
    moves.push_back({.rank = rail.ranks[partner],
                     .part = part_of(bit, 0, 0),
                     .into = {staging.data(), kept.elements * element}});
    auto moved = co_await rail_moves(rail, std::move(moves));
    if (!moved) co_return moved;
    const std::byte* ours = current + kept.first * element;
    join_two(work, lower ? ours : staging.data(), lower ? staging.data() : ours,
             work.target + kept.first * element, kept.elements);
    current = work.target;
    range = kept;
  }
  divide(work, work.target + range.first * element, range.elements);
  for (uint32_t bit = rail.size() / 2; bit != 0; bit /= 2) {
    const uint32_t partner = rail.own ^ bit;
    const Share whole = ranges.back();
    ranges.pop_back();
    const bool lower = (rail.own & bit) == 0;
    const Share theirs = lower
                             ? Share{range.first + range.elements, whole.elements - range.elements}
                             : Share{whole.first, whole.elements - range.elements};
    std::vector<RailMove> moves;
    moves.push_back({.rank = rail.ranks[partner],
                     .part = part_of(bit, 0, 1),
                     .out = true,
                     .from = view(work.target, range, element)});
    moves.push_back({.rank = rail.ranks[partner],
                     .part = part_of(bit, 0, 1),
                     .into = view(work.target, theirs, element)});
    auto moved = co_await rail_moves(rail, std::move(moves));
    if (!moved) co_return moved;
    range = whole;
  }
  co_return Result<void>{};
}

Task<Result<void>> reduce_by_tree(const Rail& rail, const RailReduction& work) {
  const uint64_t bytes = work.elements * dtype_bytes(work.type);
  const std::byte* current = work.sources[0];
  std::vector<std::byte> staging;
  for (uint32_t bit = 1; bit < rail.size(); bit *= 2) {
    if ((rail.own & bit) != 0) {
      const Bytes sent{current, bytes};
      auto given = co_await rail.transport->send(rail.ranks[rail.own - bit],
                                                 rail.tag(part_of(bit, 0, 0)), sent);
      if (!given) co_return given;
      break;
    }
    if (rail.own + bit >= rail.size()) continue;
    staging.resize(bytes);
    const MutableBytes room(staging);
    auto taken = co_await rail.transport->receive(rail.ranks[rail.own + bit],
                                                  rail.tag(part_of(bit, 0, 0)), room);
    if (!taken) co_return taken;
    join_two(work, current, staging.data(), work.target, work.elements);
    current = work.target;
  }
  if (rail.own == 0) {
    if (current != work.target) copy_bytes(work.target, current, bytes, false);
    divide(work, work.target, work.elements);
  }
  const MutableBytes whole{work.target, bytes};
  auto told = co_await rail_broadcast(rail, 0, whole, RailWay::tree);
  co_return told;
}

Task<Result<void>> forward_blocks(const Rail& rail, uint32_t root, MutableBytes bytes,
                                  uint64_t first) {
  const uint32_t size = rail.size();
  const uint32_t place = (rail.own + size - root) % size;
  const uint64_t blocks = std::max<uint64_t>((bytes.size() + kBlockBytes - 1) / kBlockBytes, 1);
  for (uint64_t index = first; index < blocks; index += kBlocksAtOnce) {
    const uint64_t skipped = index * kBlockBytes;
    const MutableBytes block =
        bytes.subspan(skipped, std::min(kBlockBytes, bytes.size() - skipped));
    const Tag tag = rail.tag(part_of(index, 0, 1));
    if (place != 0) {
      auto taken =
          co_await rail.transport->receive(rail.ranks[(rail.own + size - 1) % size], tag, block);
      if (!taken) co_return taken;
    }
    if (place + 1 == size) continue;
    auto given = co_await rail.transport->send(rail.ranks[(rail.own + 1) % size], tag, block);
    if (!given) co_return given;
  }
  co_return Result<void>{};
}

Task<Result<void>> move_one(const Rail& rail, RailMove move) {
  const Tag tag = rail.tag(move.part);
  if (move.out) {
    auto sent = co_await rail.transport->send(move.rank, tag, move.from);
    co_return sent;
  }
  auto received = co_await rail.transport->receive(move.rank, tag, move.into);
  co_return received;
}

}  // namespace

bool rail_way_fits(RailWay way, uint32_t lanes, std::span<const std::vector<LaneRange>> nodes) {
  if (way == RailWay::direct) return true;
  if (way == RailWay::ring) return false;  // sums that go round have another order for each piece
  if (way == RailWay::halving && !std::has_single_bit(nodes.size())) return false;
  const uint32_t each = nodes.empty() || nodes[0].empty() ? 0 : nodes[0][0].count;
  if (!std::has_single_bit(each) && nodes.size() > 1) return false;
  uint64_t next = 0;
  for (const std::vector<LaneRange>& host : nodes) {
    if (host.size() != 1 || host[0].first != next || next >= lanes) return false;
    if (host[0].count != std::min<uint64_t>(each, lanes - next)) return false;
    next += each;
  }
  return next >= lanes;
}

Task<Result<void>> rail_all_reduce(Rail rail, RailReduction work) {
  TUTTI_ASSERT(rail_way_fits(work.way, work.lanes, work.nodes), "the way was chosen to fit");
  if (work.elements == 0) co_return Result<void>{};
  if (work.way == RailWay::halving && rail.size() > 1) {
    auto done = co_await reduce_by_halving(rail, work);
    co_return done;
  }
  if (work.way == RailWay::tree) {
    auto done = co_await reduce_by_tree(rail, work);
    co_return done;
  }
  auto done = co_await reduce_direct(rail, work);
  co_return done;
}

Task<Result<void>> rail_all_gather(Rail rail, std::vector<MutableBytes> pieces, RailWay way) {
  const uint32_t size = rail.size();
  if (way != RailWay::ring) {
    std::vector<RailMove> moves;
    for (uint32_t host = 0; host < size; ++host) {
      if (host == rail.own) continue;
      moves.push_back({.rank = rail.ranks[host], .out = true, .from = pieces[rail.own]});
      moves.push_back({.rank = rail.ranks[host], .into = pieces[host]});
    }
    auto moved = co_await rail_moves(rail, std::move(moves));
    co_return moved;
  }
  for (uint32_t step = 0; step + 1 < size; ++step) {
    std::vector<RailMove> moves;
    moves.push_back({.rank = rail.ranks[(rail.own + 1) % size],
                     .part = step,
                     .out = true,
                     .from = pieces[(rail.own + size - step) % size]});
    moves.push_back({.rank = rail.ranks[(rail.own + size - 1) % size],
                     .part = step,
                     .into = pieces[(rail.own + 2 * size - step - 1) % size]});
    auto moved = co_await rail_moves(rail, std::move(moves));
    if (!moved) co_return moved;
  }
  co_return Result<void>{};
}

Task<Result<void>> rail_broadcast(Rail rail, uint32_t root, MutableBytes bytes, RailWay way) {
  const uint32_t size = rail.size();
  if (way == RailWay::ring) {
    std::vector<Task<Result<void>>> workers;
    for (uint32_t i = 0; i < kBlocksAtOnce; ++i)
      workers.push_back(forward_blocks(rail, root, bytes, i));
    auto done = co_await all_of(std::move(workers));
    co_return done;
  }
  // From the root to the farthest half, and so on: place p hears from p without its lowest bit.
  const uint32_t place = (rail.own + size - root) % size;
  const uint32_t lowest = place == 0 ? std::bit_ceil(size) : place & -place;
  const auto rank_at = [&](uint32_t p) { return rail.ranks[(p + root) % size]; };
  if (place != 0) {
    auto heard = co_await rail.transport->receive(rank_at(place - lowest),
                                                  rail.tag(part_of(lowest, 1, 1)), bytes);
    if (!heard) co_return heard;
  }
  std::vector<RailMove> moves;
  for (uint32_t bit = lowest / 2; bit != 0; bit /= 2)
    if (place + bit < size)
      moves.push_back(
          {.rank = rank_at(place + bit), .part = part_of(bit, 1, 1), .out = true, .from = bytes});
  auto moved = co_await rail_moves(rail, std::move(moves));
  co_return moved;
}

// In round k everybody tells who is 2^k places on, so that after all rounds everybody has heard of
// everybody.
Task<Result<void>> rail_barrier(Rail rail) {
  const uint32_t size = rail.size();
  for (uint32_t distance = 1; distance < size; distance *= 2) {
    std::vector<RailMove> moves;
    moves.push_back(
        {.rank = rail.ranks[(rail.own + distance) % size], .part = distance, .out = true});
    moves.push_back({.rank = rail.ranks[(rail.own + size - distance) % size], .part = distance});
    auto moved = co_await rail_moves(rail, std::move(moves));
    if (!moved) co_return moved;
  }
  co_return Result<void>{};
}

Task<Result<void>> rail_moves(Rail rail, std::vector<RailMove> moves) {
  Scope scope;
  for (RailMove& move : moves) scope.spawn(move_one(rail, move));
  auto joined = co_await scope.join();
  co_return joined;
}

}  // namespace tutti
