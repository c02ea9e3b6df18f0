#include "compile/shard/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/assert.h"
#include "base/units.h"
#include "compile/collective.h"

namespace tutti {

// A value on its way, and how it lies by now.
struct Resharder::Move {
  ValueId value;
  const Type& whole;
  const TensorSharding& from;
  const TensorSharding& to;
  const std::string& at;
  TensorSharding now;

  const std::string& name(size_t dim) const { return whole.dims[dim].name; }
  // The axis that a dimension needs next, if what it has by now is how that begins.
  const std::string* next_axis(size_t dim) const {
    const Names& has = now.dims[dim].axes;
    const Names& wants = to.dims[dim].axes;
    if (has.size() >= wants.size() || !std::ranges::equal(has, std::span(wants).first(has.size())))
      return nullptr;
    if (!has.empty() && now.dims[dim].segments != to.dims[dim].segments) return nullptr;
    return &wants[has.size()];
  }
  bool has_too_much(size_t dim) const {
    const DimSharding& is = now.dims[dim];
    const DimSharding& wanted = to.dims[dim];
    if (is.axes.empty()) return false;
    if (is.axes.size() > wanted.axes.size() || is.segments != wanted.segments) return true;
    return !std::ranges::equal(is.axes, std::span(wanted.axes).first(is.axes.size()));
  }
  void split(size_t dim, const std::string& axis) {
    now.dims[dim].axes.push_back(axis);
    now.dims[dim].segments = to.dims[dim].segments;
  }
  void join(size_t dim) {
    now.dims[dim].axes.pop_back();
    if (now.dims[dim].axes.empty()) now.dims[dim].segments.clear();
  }
};

namespace {

// The sizes of a dimension's segments on a rank.
std::vector<int64_t> local_segments(const DimSharding& dim, const ShardMesh& mesh) {
  std::vector<int64_t> local = dim.segments;
  for (int64_t& size : local) size /= mesh.product(dim.axes);
  return local;
}

}  // namespace

ValueId Resharder::emit(Node op, const Type* given) {
  auto made = to_.add(std::move(op), given);
  TUTTI_ASSERT(made.has_value(), "what a resharding is made of fits together");
  return made->front();
}

Node Resharder::collective(OpKind kind, ValueId value, const std::string& axis,
                           const std::string& at) const {
  return {.kind = kind,
          .operands = {value},
          .attributes = {{"axis", axis}, {"ranks", mesh_.size_of(axis)}},
          .at = at};
}

ValueId Resharder::all_reduce(ValueId value, const std::string& axis, bool to_max,
                              const std::string& at) {
  Node op = collective(OpKind::all_reduce, value, axis, at);
  if (to_max) op.attributes.set("op", std::string(kMaxOp));
  return emit(std::move(op));
}

ValueId Resharder::slice(ValueId value, const std::string& dim, int64_t start, int64_t size,
                         const std::string& at) {
  return emit({.kind = OpKind::slice,
               .operands = {value},
               .attributes = {{"dim", dim}, {"start", start}, {"size", size}},
               .at = at});
}

ValueId Resharder::concat(std::vector<ValueId> parts, const std::string& dim,
                          const std::string& at) {
  return emit({.kind = OpKind::concat,
               .operands = std::move(parts),
               .attributes = {{"dim", dim}},
               .at = at});
}

ValueId Resharder::by_parts(ValueId value, const std::string& dim,
                            const std::vector<int64_t>& segments, int64_t parts, bool back,
                            const std::string& at) {
  if (segments.size() < 2) return value;
  std::vector<ValueId> pieces(segments.size() * static_cast<size_t>(parts));
  int64_t total = 0;
  for (const int64_t segment : segments) total += segment;
  int64_t before = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    const int64_t size = segments[s] / parts;
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t by_segment = before + p * size;
      const int64_t by_part = total / parts * p + before / parts;
      const ValueId piece = slice(value, dim, back ? by_part : by_segment, size, at);
      const auto part = static_cast<size_t>(p);
      pieces[back ? s * static_cast<size_t>(parts) + part : part * segments.size() + s] = piece;
    }
    before += segments[s];
  }
  return concat(std::move(pieces), dim, at);
}

// Along an axis that is to split a dimension: each rank gets its part of the sum.
void Resharder::scatter(Move& move, size_t dim) {
  const std::string axis = *move.next_axis(dim);
  const DimSharding lies{move.now.dims[dim].axes, move.to.dims[dim].segments};
  const ValueId parts = by_parts(move.value, move.name(dim), local_segments(lies, mesh_),
                                 mesh_.size_of(axis), false, move.at);
  Node op = collective(OpKind::reduce_scatter, parts, axis, move.at);
  op.attributes.set("dim", move.name(dim));
  move.value = emit(std::move(op));
  move.split(dim, axis);
  move.now.partial = without(move.now.partial, {axis});
}

// Parts first, so that the others have less to sum.
void Resharder::reduce(Move& move) {
  for (size_t dim = 0; dim < move.whole.dims.size(); ++dim)
    for (const std::string* axis = move.next_axis(dim);
         axis != nullptr && contains(move.now.partial, *axis) && !contains(move.to.partial, *axis);
         axis = move.next_axis(dim))
      scatter(move, dim);
  for (const std::string& axis : without(move.now.partial, move.to.partial))
    move.value = all_reduce(move.value, axis, false, move.at);
  move.now.partial = move.to.partial;
}

// Along axes that split nothing by now.
void Resharder::take_slices(Move& move) {
  for (size_t dim = 0; dim < move.whole.dims.size(); ++dim) {
    const std::string* axis = move.next_axis(dim);
    while (axis != nullptr && !move.now.has_axis(*axis) && !contains(move.now.partial, *axis)) {
      const auto own = [&](ValueId value) {
        Node op = collective(OpKind::own_slice, value, *axis, move.at);
        op.attributes.set("dim", move.name(dim));
        return emit(std::move(op));
      };
      const DimSharding lies{move.now.dims[dim].axes, move.to.dims[dim].segments};
      std::vector<ValueId> parts;
      int64_t start = 0;
      for (const int64_t size : local_segments(lies, mesh_)) {
        parts.push_back(own(slice(move.value, move.name(dim), start, size, move.at)));
        start += size;
      }
      move.value = parts.empty() ? own(move.value) : concat(parts, move.name(dim), move.at);
      move.split(dim, *axis);
      axis = move.next_axis(dim);
    }
  }
}

// The last axis of a dimension, that it is not to have, or not there.
Result<void> Resharder::gather_or_move(Move& move, size_t dim) {
  const std::string axis = move.now.dims[dim].axes.back();
  const bool plain = move.now.dims[dim].segments.empty();
  for (size_t other = 0; plain && other < move.whole.dims.size(); ++other) {
    const std::string* next = move.next_axis(other);
    if (other == dim || next == nullptr || *next != axis) continue;
    if (!move.to.dims[other].segments.empty()) continue;
    Node op = collective(OpKind::all_to_all, move.value, axis, move.at);
    op.attributes.set("from", move.name(dim));
    op.attributes.set("to", move.name(other));
    move.value = emit(std::move(op));
    move.join(dim);
    move.split(other, axis);
    return {};
  }
  const std::vector<int64_t> segments = move.now.dims[dim].segments;
  const int64_t ranks = mesh_.size_of(axis);
  const int64_t bytes = to_.type(move.value).bytes() * ranks;
  if (bytes > limit_) {
    const Error error(
        Code::invalid,
        fmt::format("{} is needed as {}: that gathers {} on every rank, more than the {} of the "
                    "limit; split what needs it by a rule, or allow more",
                    sharding_text(move.whole, move.from), sharding_text(move.whole, move.to),
                    format_bytes(static_cast<uint64_t>(bytes)),
                    format_bytes(static_cast<uint64_t>(limit_))));
    return fail(move.at.empty() ? error : error.context(move.at));
  }
  Node op = collective(OpKind::all_gather, move.value, axis, move.at);
  op.attributes.set("dim", move.name(dim));
  move.value = emit(std::move(op));
  move.now.dims[dim].axes.pop_back();
  const DimSharding lies{move.now.dims[dim].axes, segments};
  move.value =
      by_parts(move.value, move.name(dim), local_segments(lies, mesh_), ranks, true, move.at);
  if (move.now.dims[dim].axes.empty()) move.now.dims[dim].segments.clear();
  return {};
}

Result<ValueId> Resharder::reshard(ValueId value, const Type& whole, const TensorSharding& from,
                                   const TensorSharding& to, const std::string& at) {
  TUTTI_ASSERT(without(to.partial, from.partial).empty(), "sums are not taken apart");
  Move move{.value = value, .whole = whole, .from = from, .to = to, .at = at, .now = from};
  reduce(move);
  take_slices(move);
  for (size_t dim = 0; dim < whole.dims.size(); ++dim)
    while (move.has_too_much(dim)) TRY_DO(gather_or_move(move, dim));
  take_slices(move);
  TUTTI_ASSERT(move.now == to, "a resharding ends where it was to");
  return move.value;
}

}  // namespace tutti
