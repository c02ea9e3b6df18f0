// What ranks of different hosts do together: one rank of each host, the rail, moves and reduces
// bytes through its Transport. Strands of the engine run these; all ranks of a rail call the same.
//
// Sums follow the one tree whatever the way (docs/fabric.md). Halves are no type here: they travel
// as f32 and are rounded once, at the end, by the caller.
#pragma once

#include <span>
#include <vector>

#include "fabric/dtype.h"
#include "fabric/fold_tree.h"
#include "fabric/transport.h"

namespace tutti {

// Of the number of a tag, what is the call's.
constexpr int kCallShift = 40;

struct Rail {
  Transport* transport = nullptr;
  std::vector<uint32_t> ranks;  // by host
  uint32_t own = 0;             // which of them we are
  uint64_t scope = 0;           // of tags: the group
  uint32_t call = 0;            // of the group

  uint32_t size() const { return static_cast<uint32_t>(ranks.size()); }
  // A part is whatever the two ends call it, below 2^40.
  Tag tag(uint64_t part) const { return {scope, uint64_t{call} << kCallShift | part}; }
};

// direct: everybody speaks with everybody. halving: in log2(n) exchanges of halves, then of
// doubles. tree: whole vectors towards one rank and back. ring: pieces go round.
enum class RailWay : uint8_t { direct, halving, tree, ring };
constexpr int kRailWays = 4;
constexpr std::string_view rail_way_name(RailWay way) {
  constexpr std::string_view names[] = {"direct", "halving", "tree", "ring"};
  return names[static_cast<int>(way)];
}

struct RailReduction {
  DType type = DType::f32;  // no half
  ReduceOp op = ReduceOp::sum;
  uint32_t lanes = 0;
  std::vector<std::vector<LaneRange>> nodes;  // by host: what it has joined
  std::vector<const std::byte*> sources;      // our nodes, in that order
  std::byte* target = nullptr;                // may be a source
  uint64_t elements = 0;
  RailWay way = RailWay::direct;
};

// Whether a way fits: halving wants a power of two of hosts, and like tree that every host has one
// node, all of one size but for the last.
bool rail_way_fits(RailWay way, uint32_t lanes, std::span<const std::vector<LaneRange>> nodes);

Task<Result<void>> rail_all_reduce(Rail rail, RailReduction work);

// Piece i is host i's; ours is there, the others are filled.
Task<Result<void>> rail_all_gather(Rail rail, std::vector<MutableBytes> pieces, RailWay way);

// From one host to all: as a tree, or from one to the next (ring) in blocks that follow each other.
Task<Result<void>> rail_broadcast(Rail rail, uint32_t root, MutableBytes bytes, RailWay way);

// Returns when all have called it.
Task<Result<void>> rail_barrier(Rail rail);

// Messages between any two ranks, all at once.
struct RailMove {
  uint32_t rank = 0;
  uint64_t part = 0;  // of the tag
  bool out = false;
  Bytes from;         // if out
  MutableBytes into;  // else
};
Task<Result<void>> rail_moves(Rail rail, std::vector<RailMove> moves);

}  // namespace tutti
