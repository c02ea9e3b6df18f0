#include "fabric/flight_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace tutti {

namespace {

// Of a gang: more are a mistake of whoever wrote it.
constexpr uint32_t kMostRanks = 1 << 20;
constexpr int64_t kMostNs = int64_t{1} << 62;

template <size_t bytes>
std::string text_of(const char (&field)[bytes]) {
  std::string text(field, strnlen(field, bytes));
  std::ranges::replace_if(text, [](char c) { return c >= 0 && (c < ' ' || c == '\x7f'); }, '?');
  return text;
}

// Not known, when it is none that a clock shows.
int64_t time_of(int64_t ns) { return ns < 0 || ns > kMostNs ? 0 : ns; }

RangeSet ranks_of(const FlightGroup& group) {
  RangeSet ranks;
  uint64_t count = 0;
  for (uint32_t i = 0; i < std::min(group.runs, kFlightRuns); ++i) {
    const FlightRun& run = group.members[i];
    const uint64_t last = run.first + uint64_t{run.step} * (uint64_t{run.count} - 1);
    if (run.count == 0 || run.step == 0 || last >= kMostRanks) return {};
    count += run.count;
    if (count > group.size) return {};
    if (run.step == 1) ranks.add(run.first, static_cast<uint32_t>(last));
    if (run.step == 1) continue;
    for (uint64_t rank = run.first; rank <= last; rank += run.step)
      ranks.add(static_cast<uint32_t>(rank));
  }
  return ranks.size() == group.size ? ranks : RangeSet();
}

std::string site_of(uint16_t site, const FlightRecord& record) {
  return site < std::min(record.sites_known, kMostSites) ? text_of(record.sites[site].text) : "";
}

std::optional<SeenCall> call_of(const FlightCall& call, const FlightRecord& record) {
  if (static_cast<int>(call.kind) >= kCallKinds || static_cast<int>(call.type) >= kDTypes ||
      call.op > ReduceOp::min || call.phase > FlightPhase::failed ||
      call.phase == FlightPhase::none || call.kind == CallKind::done)
    return {};
  SeenCall seen{.number = call.number,
                .call = call.call,
                .group = call.group,
                .kind = call.kind,
                .type = call.type,
                .op = call.op,
                .elements = call.elements,
                .phase = call.phase,
                .began_ns = time_of(call.began_ns),
                .ended_ns = time_of(call.ended_ns)};
  if (call.number != 0) seen.site = site_of(call.site, record);
  return seen;
}

void read_groups(const FlightRecord& record, SeenFlight& seen) {
  for (uint32_t i = 0; i < std::min(record.groups_made, kMostGroups); ++i) {
    const FlightGroup& group = record.groups[i];
    SeenGroup& added = seen.groups.emplace_back();
    added.key = group.key;
    added.name = text_of(group.name);
    added.size = group.size;
    added.begun = group.begun;
    added.ranks = ranks_of(group);
    if (group.gave_up != 0) added.failure = text_of(group.failure);
    const auto now = call_of(group.now, record);
    // A rank that died while it wrote this had called nothing else meanwhile.
    added.now = now.value_or(SeenCall{.phase = FlightPhase::done});
    added.now.group = i;
  }
}

// Those that have their place, in order: what stands in between is torn or older.
void read_calls(const FlightRecord& record, SeenFlight& seen) {
  for (uint32_t i = 0; i < kFlightCalls; ++i) {
    const FlightCall& call = record.calls[i];
    const uint32_t behind = record.count - call.number;  // modulo 2^32, as they are counted
    const uint32_t of_epoch = record.count - record.first;
    if (call.number == 0 || (call.number - 1) % kFlightCalls != i || behind >= kFlightCalls ||
        behind >= of_epoch || call.group >= seen.groups.size())
      continue;
    if (auto read = call_of(call, record)) seen.calls.push_back(std::move(*read));
  }
  std::ranges::sort(seen.calls, {}, [&](const SeenCall& call) {
    return kFlightCalls - (record.count - call.number);
  });
  seen.earlier_calls = record.count - seen.calls.size();
}

}  // namespace

std::string SeenCall::text() const {
  if (kind == CallKind::none) return "the making of the group";
  std::string text = fmt::format("call {}, {}", call, call_kind_name(kind));
  if (kind != CallKind::barrier) text += fmt::format(" of {} {}", elements, dtype_name(type));
  if (reduces(kind)) text += fmt::format(", {}", reduce_op_name(op));
  return text;
}

std::string SeenParcel::text() const {
  switch (kind) {
    case ParcelKind::send:
      return fmt::format("a message of {} bytes to rank {} with tag {}", bytes, rank, tag);
    case ParcelKind::receive:
      return fmt::format("a message of {} bytes from rank {} with tag {}", bytes, rank, tag);
    case ParcelKind::put: return fmt::format("a put of {} bytes to rank {}", bytes, rank);
    default: return fmt::format("a get of {} bytes from rank {}", bytes, rank);
  }
}

bool SeenCall::means_the_same(const SeenCall& other) const {
  const bool own_sizes =
      kind == CallKind::all_gather || kind == CallKind::gather || kind == CallKind::all_to_all;
  return kind == other.kind && (kind == CallKind::barrier || type == other.type) &&
         (own_sizes || elements == other.elements) && (!reduces(kind) || op == other.op);
}

Result<SeenFlight> read_flight(Bytes bytes) {
  if (bytes.size() < kFlightBriefBytes)
    return fail(Code::corrupt, "{} bytes are no flight record", bytes.size());
  const auto record = std::make_unique<FlightRecord>();
  std::memcpy(static_cast<void*>(record.get()), bytes.data(),
              std::min(bytes.size(), sizeof(FlightRecord)));
  if (record->magic != kFlightMagic) return fail(Code::corrupt, "there is no flight record");
  if (record->layout != kFlightLayout)
    return fail(Code::unsupported, "a flight record of layout {}, of another version of tutti",
                record->layout);
  if (record->world_size > kMostRanks || record->rank >= record->world_size)
    return fail(Code::corrupt, "a flight record of rank {} of {}", record->rank,
                record->world_size);
  SeenFlight seen{.epoch = record->epoch,
                  .gang = record->gang,
                  .rank = record->rank,
                  .world_size = record->world_size,
                  .pid = record->pid,
                  .left = record->left != 0,
                  .joining = record->waiting == kWaitsToJoin};
  read_groups(*record, seen);
  if (!seen.joining && record->waiting != kWaitsForNothing && record->waiting <= seen.groups.size())
    seen.waits_in = record->waiting - 1;
  const FlightParcel& parcel = record->parcel;
  if (record->waiting == kWaitsForParcel && parcel.kind > ParcelKind::none &&
      parcel.kind <= ParcelKind::get && parcel.rank < record->world_size)
    seen.parcel = SeenParcel{.kind = parcel.kind,
                             .rank = parcel.rank,
                             .tag = parcel.tag,
                             .bytes = parcel.bytes,
                             .began_ns = time_of(parcel.began_ns),
                             .site = site_of(parcel.site, *record)};
  if (bytes.size() >= sizeof(FlightRecord)) read_calls(*record, seen);
  return seen;
}

}  // namespace tutti
