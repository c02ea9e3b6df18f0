#include "record/reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/hash.h"
#include "base/units.h"

namespace tutti {
namespace {

using namespace record_layout;

template <class T>
T load(Bytes from, uint64_t offset) {
  T value;
  std::memcpy(&value, from.data() + offset, sizeof value);
  return value;
}

template <size_t kSize>
std::string name_in(const std::array<char, kSize>& field) {
  return {field.begin(), std::find(field.begin(), field.end(), '\0')};
}

Result<void> check_shape(const Header& header) {
  const auto power_within = [](uint32_t count, uint32_t most) {
    return std::has_single_bit(count) && count <= most;
  };
  const auto within = [](uint32_t count, uint32_t most) { return count >= 1 && count <= most; };
  if (header.header_bytes != kHeaderBytes || header.entry_bytes != sizeof(Entry) ||
      header.record_bytes != sizeof(Slot) || !power_within(header.lanes, kMaxLanes) ||
      !power_within(header.lane_records, kMaxLaneRecords) || !within(header.kinds, kMaxEntries) ||
      !within(header.cells, kMaxEntries))
    return fail(Code::corrupt, "the header's sizes, from byte 12 to 40, make no sense");
  return {};
}

// `start` is at least the header's page, when the file has that much.
Result<Header> parse_header(Bytes start, uint64_t size) {
  if (size < kMagic.size() || load<std::array<char, 8>>(start, 0) != kMagic)
    return fail(Code::invalid, "this is no recording: its first bytes are not \"{}\"",
                std::string_view(kMagic.data(), kMagic.size()));
  if (size < kHeaderBytes)
    return fail(Code::corrupt, "cut short within the header: {} of {} bytes are there", size,
                kHeaderBytes);
  const auto header = load<Header>(start, 0);
  if (header.version != record_layout::kVersion)
    return fail(Code::unsupported,
                "a recording of version {}, and this program reads version {}: use the tutti that "
                "wrote it",
                header.version, record_layout::kVersion);
  const uint64_t check = hash64(start.first(offsetof(Header, check)));
  if (header.check != check)
    return fail(Code::corrupt,
                "the header, bytes 0 to {}, is damaged: its hash is {:016x}, not {:016x}",
                offsetof(Header, check), check, header.check);
  TRY_DO(check_shape(header));
  if (size < file_bytes(header))
    return fail(Code::corrupt, "cut short at byte {}: the header promises {}", size,
                file_bytes(header));
  return header;
}

// An entry that is empty, or still being written, has type none.
Entry parse_entry(Bytes file, uint64_t offset) {
  auto entry = load<Entry>(file, offset);
  constexpr size_t kTypeAt = offsetof(Entry, type);
  const Bytes checked = file.subspan(offset + kTypeAt, offsetof(Entry, check) - kTypeAt);
  const size_t text_bytes = size_t{entry.name_bytes} + entry.a_bytes + entry.b_bytes;
  if (entry.type > EntryType::gauge || text_bytes > entry.text.size() ||
      entry.check != hash64(checked))
    entry.type = EntryType::none;
  return entry;
}

std::vector<Recording::Kind> parse_kinds(Bytes file, const Header& header) {
  std::vector<Recording::Kind> kinds;
  for (uint32_t i = 0; i < header.kinds; ++i) {
    const Entry entry = parse_entry(file, kinds_at() + i * sizeof(Entry));
    if (entry.type != EntryType::kind) continue;
    kinds.resize(i);  // a damaged entry before this one leaves a kind without a name
    const std::string_view text(entry.text.data(), entry.text.size());
    const size_t a_at = entry.name_bytes;
    const size_t b_at = a_at + entry.a_bytes;
    kinds.push_back({std::string(text.substr(0, a_at)),
                     std::string(text.substr(a_at, entry.a_bytes)),
                     std::string(text.substr(b_at, entry.b_bytes))});
  }
  return kinds;
}

std::vector<Recording::Cell> parse_cells(Bytes file, const Header& header) {
  std::vector<Recording::Cell> cells;
  for (uint32_t i = 0; i < header.cells; ++i) {
    const Entry entry = parse_entry(file, cells_at(header) + i * sizeof(Entry));
    if (entry.type != EntryType::counter && entry.type != EntryType::gauge) continue;
    cells.push_back({std::string(entry.text.data(), entry.name_bytes),
                     entry.type == EntryType::gauge, entry.value});
  }
  return cells;
}

Record record_of(const Slot& slot) {
  Record record{.sequence = slot.sequence,
                .time_ns = slot.time_ns,
                .kind = slot.kind,
                .thread = slot.thread,
                .op = slot.op,
                .span = slot.span,
                .a = slot.a,
                .b = slot.b};
  if (slot.op == Op::begin) record.parent = static_cast<uint64_t>(slot.detail);
  if (slot.op == Op::end) record.began_ns = slot.detail;
  return record;
}

// A record is in its slot when its hash is right and its sequence belongs there. It counts unless
// it is older than what the lane holds: then the one that should have replaced it was torn.
void parse_lane(Bytes file, const Header& header, uint32_t lane, Recording& into) {
  const uint64_t begun = load<uint64_t>(file, kPositionsAt + lane * kPositionStride);
  const uint64_t oldest = begun > header.lane_records ? begun - header.lane_records : 0;
  uint64_t newest_end = begun;  // records go on being written after we read how many there are
  const size_t before = into.records.size();
  for (uint64_t i = 0; i < header.lane_records; ++i) {
    const uint64_t offset = lane_at(header, lane) + i * sizeof(Slot);
    const auto slot = load<Slot>(file, offset);
    if (slot.sequence == 0 || slot.check != check_of(load<SlotWords>(file, offset))) continue;
    const uint64_t place = slot.sequence - 1;
    const uint64_t position = place / header.lanes;
    const bool belongs = place % header.lanes == lane && position % header.lane_records == i;
    if (!belongs || position < oldest || slot.op > Op::end || slot.kind >= header.kinds) continue;
    newest_end = std::max(newest_end, position + 1);
    into.records.push_back(record_of(slot));
  }
  const uint64_t used_slots = std::min<uint64_t>(newest_end, header.lane_records);
  into.torn += used_slots - (into.records.size() - before);
  into.overwritten += newest_end - used_slots;
}

bool earlier(const Record& left, const Record& right) {
  return left.time_ns != right.time_ns ? left.time_ns < right.time_ns
                                       : left.sequence < right.sequence;
}

}  // namespace

Result<Recording> parse_recording(Bytes file) {
  TRY(const Header header, parse_header(file, file.size()));
  Recording recording{.host = name_in(header.host),
                      .process = name_in(header.process),
                      .pid = header.pid,
                      .created_ns = header.created_ns,
                      .created_unix_ns = header.created_unix_ns,
                      .closed_ns = load<int64_t>(file, kClosedAt),
                      .refused_names = load<uint64_t>(file, kRefusedAt)};
  for (uint32_t lane = 0; lane < header.lanes; ++lane) parse_lane(file, header, lane, recording);
  std::sort(recording.records.begin(), recording.records.end(), earlier);
  recording.kinds = parse_kinds(file, header);
  recording.cells = parse_cells(file, header);
  for (const Record& record : recording.records)
    if (record.kind >= recording.kinds.size()) recording.kinds.resize(record.kind + 1);
  return recording;
}

// The header is looked at first: a large file of another kind is not read for nothing.
Task<Result<Recording>> read_recording(Disk& disk, std::string path) {
  CO_TRY(auto file, co_await disk.open(path, OpenOptions{}));
  CO_TRY(const uint64_t size, co_await file->size());
  std::string bytes(std::min<uint64_t>(size, kHeaderBytes), '\0');
  MutableBytes into = as_mutable_bytes(bytes);
  CO_TRY(const size_t start, co_await file->read(0, into));
  bytes.resize(start);
  auto header = parse_header(as_bytes(bytes), start < kHeaderBytes ? start : size);
  if (!header) co_return fail(header.error().context(path));
  bytes.resize(file_bytes(*header));
  into = as_mutable_bytes(bytes);
  CO_TRY(const size_t got, co_await file->read(0, into));
  bytes.resize(got);
  auto recording = parse_recording(as_bytes(bytes));
  if (!recording) co_return fail(recording.error().context(path));
  co_return recording;
}

std::vector<Record> records_since(const Recording& before, const Recording& now) {
  std::vector<uint64_t> known;
  known.reserve(before.records.size());
  for (const Record& record : before.records) known.push_back(record.sequence);
  std::sort(known.begin(), known.end());
  std::vector<Record> fresh;
  for (const Record& record : now.records)
    if (!std::binary_search(known.begin(), known.end(), record.sequence)) fresh.push_back(record);
  return fresh;
}

}  // namespace tutti
