#include "fabric/call_words.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/hash.h"
#include "fabric/plan.h"

namespace tutti {

namespace {

bool uneven(const Call& call) { return call.kind == CallKind::all_to_all && !call.counts.empty(); }

// Whether all bring as many elements, in the same shape.
bool alike(const Call& call) {
  return call.kind != CallKind::all_gather && call.kind != CallKind::gather && !uneven(call);
}

// One dimension is none: what has no shape is as good.
std::span<const uint64_t> shape_of(const Call& call) {
  if (!alike(call) || call.shape.size() < 2) return {};
  return call.shape;
}

std::string shape_words(const BoardDetail& detail) {
  const uint32_t shown = std::min(detail.dimensions, kShownDimensions);
  std::string text = fmt::format("({}", fmt::join(std::span(detail.shape, shown), ", "));
  if (shown < detail.dimensions)
    text += fmt::format(", …; {} in all, hash {:08x}", detail.dimensions, detail.shape_hash);
  return text + ")";
}

std::string count_words(const BoardGroup& group, uint32_t tick) {
  const BoardDetail& detail = group.details[tick & 1];
  const std::byte* table = group.small[tick & 1] + group.calls[tick & 1].parts * kPartBytes;
  std::vector<uint64_t> counts;
  for (uint16_t i = 0; i < std::min<size_t>(detail.counts, kShownCounts); ++i)
    counts.push_back(load_le<uint64_t>(table + size_t{i} * 8));
  const char* more = detail.counts > counts.size() ? ", …" : "";
  return fmt::format("{}{}", fmt::join(counts, ", "), more);
}

}  // namespace

uint64_t signature_of(const Call& call) {
  const uint64_t words[] = {static_cast<uint64_t>(call.kind),
                            static_cast<uint64_t>(call.type),
                            reduces(call.kind) ? static_cast<uint64_t>(call.op) : 0,
                            alike(call) ? call.elements : 0,
                            call.root,
                            call.kind == CallKind::shift ? static_cast<uint64_t>(call.distance) : 0,
                            call.shared_output ? 1U
                            : uneven(call)     ? 2U
                                               : 0U,
                            call.lanes};
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(words)));
  hasher.update(std::as_bytes(shape_of(call)));
  if (call.kind == CallKind::reduce_scatter) hasher.update(std::as_bytes(std::span(call.counts)));
  if (call.kind == CallKind::reshard) {
    const Hash128 plan = call.plan->hash();
    hasher.update(std::as_bytes(std::span(&plan, 1)));
  }
  return hasher.digest64();
}

BoardDetail detail_of(const Call& call) {
  const auto shape = shape_of(call);
  BoardDetail detail{.dimensions = static_cast<uint32_t>(shape.size()),
                     .distance = call.distance,
                     .shared = call.shared_output,
                     .uneven = uneven(call)};
  std::ranges::copy(shape.first(std::min<size_t>(shape.size(), kShownDimensions)), detail.shape);
  if (shape.size() > kShownDimensions)
    detail.shape_hash = static_cast<uint32_t>(hash64(std::as_bytes(shape)));
  if (call.kind == CallKind::reduce_scatter)
    detail.counts = static_cast<uint16_t>(std::min<size_t>(call.counts.size(), kShownCounts + 1));
  return detail;
}

std::vector<uint64_t> shown_counts(const Call& call) {
  if (call.kind != CallKind::reduce_scatter) return {};
  const size_t shown = std::min(call.counts.size(), kShownCounts);
  return {call.counts.begin(), call.counts.begin() + static_cast<ptrdiff_t>(shown)};
}

std::string describe(const BoardGroup& group, uint32_t tick, const Board& board) {
  const BoardCall& call = group.calls[tick & 1];
  const BoardDetail& detail = group.details[tick & 1];
  std::string text(call_kind_name(call.kind));
  if (call.kind == CallKind::reshard)
    text += fmt::format(" of {} tensors by plan {:016x}", call.elements, call.signature);
  else if (call.kind != CallKind::barrier)
    text += fmt::format(" of {} {}", call.elements, dtype_name(call.type));
  if (reduces(call.kind)) text += fmt::format(", {}", reduce_op_name(call.op));
  if (call.kind == CallKind::broadcast || call.kind == CallKind::gather ||
      call.kind == CallKind::scatter)
    text += fmt::format(", root {}", call.root);
  if (call.kind == CallKind::shift) text += fmt::format(", distance {}", detail.distance);
  if (call.lanes != 0) text += fmt::format(", {} lanes", call.lanes);
  if (detail.dimensions != 0) text += fmt::format(", shape {}", shape_words(detail));
  if (detail.counts != 0) text += fmt::format(", counts {}", count_words(group, tick));
  if (detail.uneven) text += ", uneven";
  if (detail.shared) text += ", shared output";
  return fmt::format("{} at {}", text, board.flight.sites[call.site % kMostSites].text);
}

}  // namespace tutti
