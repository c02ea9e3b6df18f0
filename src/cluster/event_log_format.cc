#include "cluster/event_log_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/hash.h"

namespace tutti::event_log {

namespace {

constexpr size_t kAlignment = 8;  // of batches: where to look for one after a broken one
constexpr size_t kNumberDigits = 20;
constexpr size_t kLengthBytes = 4;
// The part of a batch's header that has a checksum of its own, and that checksum.
constexpr size_t kCheckedBytes = 16;
constexpr size_t kSelfCheckedBytes = 24;

std::string_view magic_of(FileKind kind) {
  return kind == FileKind::segment ? "TUTTILOG" : "TUTTISNP";
}

std::string_view prefix_of(FileKind kind) {
  return kind == FileKind::segment ? "segment-" : "snapshot-";
}

struct BatchHeader {
  uint32_t body_bytes = 0;
  uint32_t records = 0;
  uint64_t first_sequence = 0;
  uint64_t header_check = 0;
};

// A header copied to another place or another log is not believed.
uint64_t check_of_header(const std::byte* header, uint64_t log_id, uint64_t offset) {
  return hash64({header, kCheckedBytes}, log_id ^ offset);
}

std::optional<BatchHeader> batch_header_at(Bytes file, uint64_t offset, uint64_t log_id) {
  if (offset > file.size() || file.size() - offset < kSelfCheckedBytes) return std::nullopt;
  const std::byte* at = file.data() + offset;
  const auto check = load_le<uint64_t>(at + 16);
  if (check != check_of_header(at, log_id, offset)) return std::nullopt;
  return BatchHeader{load_le<uint32_t>(at), load_le<uint32_t>(at + 4), load_le<uint64_t>(at + 8),
                     check};
}

// The body of a batch that is there from beginning to end.
std::optional<Bytes> whole_body(Bytes file, uint64_t offset, const BatchHeader& header) {
  const Bytes rest = file.subspan(offset);
  if (rest.size() < kBatchHeaderBytes || rest.size() - kBatchHeaderBytes < header.body_bytes)
    return std::nullopt;
  const Bytes body = rest.subspan(kBatchHeaderBytes, header.body_bytes);
  const auto check = load_le<uint64_t>(rest.data() + kSelfCheckedBytes);
  if (check != hash64(body, header.header_check)) return std::nullopt;
  return body;
}

// What has the right checksum and yet makes no sense was never written by this program.
Result<void> visit_records(Bytes body, const BatchHeader& header, const RecordVisitor& visit) {
  size_t at = 0;
  for (uint64_t i = 0; i < header.records; ++i) {
    if (body.size() - at < kLengthBytes)
      return fail(Code::corrupt, "its records are longer than it is");
    const auto length = load_le<uint32_t>(body.data() + at);
    at += kLengthBytes;
    if (body.size() - at < length) return fail(Code::corrupt, "its records are longer than it is");
    TRY_DO(visit(header.first_sequence + i, as_text(body.subspan(at, length))));
    at += length;
  }
  if (header.records == 0 || body.size() - at >= kAlignment || body.size() % kAlignment != 0)
    return fail(Code::corrupt, "its records are shorter than it is");
  return {};
}

// A batch is written only when the one before it is on disk. So the beginning of a later one shows
// that the broken one was whole, and may have been acknowledged.
Result<void> check_nothing_follows(Bytes file, uint64_t broken, uint64_t sequence,
                                   uint64_t log_id) {
  for (uint64_t at = broken + kAlignment; at < file.size(); at += kAlignment) {
    const auto later = batch_header_at(file, at, log_id);
    if (later && later->first_sequence > sequence)
      return fail(Code::corrupt,
                  "at byte {}: the batch that begins with record {} is broken, and one that begins "
                  "with record {} follows at byte {}",
                  broken, sequence, later->first_sequence, at);
  }
  return {};
}

bool is_zero(Bytes bytes) {
  return std::ranges::all_of(bytes, [](std::byte one) { return one == std::byte{}; });
}

}  // namespace

std::string file_name(FileName name) {
  return fmt::format("{}{:0{}}", prefix_of(name.kind), name.number, kNumberDigits);
}

std::optional<FileName> parse_file_name(std::string_view text) {
  for (const FileKind kind : {FileKind::segment, FileKind::snapshot}) {
    const std::string_view prefix = prefix_of(kind);
    if (!text.starts_with(prefix) || text.size() != prefix.size() + kNumberDigits) continue;
    FileName name{kind, 0};
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + prefix.size(), end, name.number);
    if (parsed.ec == std::errc() && parsed.ptr == end) return name;
  }
  return std::nullopt;
}

std::string encode_file_header(const FileHeader& header) {
  std::string bytes(magic_of(header.name.kind));
  bytes.resize(kFileHeaderBytes);
  std::byte* at = as_mutable_bytes(bytes).data();
  store_le<uint32_t>(at + 8, kFormatVersion);
  store_le<uint64_t>(at + 16, header.log_id);
  store_le<uint64_t>(at + 24, header.name.number);
  store_le<uint64_t>(at + 32, hash64({at, 32}));
  return bytes;
}

Result<FileHeader> decode_file_header(FileKind kind, Bytes file) {
  if (file.size() < kFileHeaderBytes)
    return fail(Code::corrupt, "at byte {}: the file ends inside its header", file.size());
  const std::byte* at = file.data();
  if (as_text(file.first(8)) != magic_of(kind))
    return fail(Code::corrupt, "at byte 0: it does not begin with {}", magic_of(kind));
  if (load_le<uint64_t>(at + 32) != hash64({at, 32}))
    return fail(Code::corrupt, "at byte 32: the header's checksum is wrong");
  const auto version = load_le<uint32_t>(at + 8);
  if (version > kFormatVersion)
    return fail(Code::unsupported,
                "its format is version {}, and this program knows {}; start the newer tutti that "
                "wrote it",
                version, kFormatVersion);
  const auto log_id = load_le<uint64_t>(at + 16);
  if (version == 0 || load_le<uint32_t>(at + 12) != 0 || log_id == 0)
    return fail(Code::corrupt, "at byte 8: the header makes no sense");
  return FileHeader{{kind, load_le<uint64_t>(at + 24)}, log_id};
}

void add_record(std::string& batch, std::string_view record) {
  if (batch.empty()) {
    // Many a batch has one record: with what seal_batch() adds, it fits exactly.
    batch.reserve(kBatchHeaderBytes + kLengthBytes + record.size() + kAlignment);
    batch.resize(kBatchHeaderBytes);
  }
  std::byte length[kLengthBytes];
  store_le(length, static_cast<uint32_t>(record.size()));
  batch += as_text(length);
  batch += record;
}

void seal_batch(std::string& batch, const BatchPlace& place) {
  TUTTI_ASSERT(batch.size() >= kBatchHeaderBytes + kLengthBytes, "a batch has a record");
  TUTTI_ASSERT(place.offset % kAlignment == 0, "batches are aligned");
  batch.resize((batch.size() + kAlignment - 1) / kAlignment * kAlignment);
  std::byte* at = as_mutable_bytes(batch).data();
  const Bytes body = as_bytes(batch).subspan(kBatchHeaderBytes);
  store_le(at, static_cast<uint32_t>(body.size()));
  store_le(at + 4, place.records);
  store_le(at + 8, place.first_sequence);
  const uint64_t check = check_of_header(at, place.log_id, place.offset);
  store_le(at + 16, check);
  store_le(at + kSelfCheckedBytes, hash64(body, check));
}

Result<SegmentScan> scan_segment(Bytes file, const FileHeader& header, const RecordVisitor& visit) {
  SegmentScan scan{.next_sequence = header.name.number, .end = kFileHeaderBytes};
  while (scan.end < file.size()) {
    const auto batch = batch_header_at(file, scan.end, header.log_id);
    const auto body = batch ? whole_body(file, scan.end, *batch) : std::nullopt;
    if (!body) break;
    const std::string where = fmt::format("at byte {}", scan.end);
    if (batch->first_sequence != scan.next_sequence)
      return fail(Code::corrupt, "{}: record {} should follow, and {} does", where,
                  scan.next_sequence, batch->first_sequence);
    auto visited = visit_records(*body, *batch, visit);
    if (!visited) return fail(visited.error().context(where));
    scan.next_sequence += batch->records;
    scan.last_batch = scan.end;
    scan.end += kBatchHeaderBytes + body->size();
  }
  const Bytes rest = file.subspan(std::min<uint64_t>(scan.end, file.size()));
  scan.reserved = !rest.empty() && is_zero(rest);
  scan.torn = !rest.empty() && !scan.reserved;
  if (scan.torn) TRY_DO(check_nothing_follows(file, scan.end, scan.next_sequence, header.log_id));
  return scan;
}

SnapshotSealer::SnapshotSealer(const FileHeader& header, uint64_t state_bytes)
    : front_(encode_file_header(header)),
      padding_((kAlignment - (kLengthBytes + state_bytes) % kAlignment) % kAlignment) {
  front_.resize(kSnapshotFront);
  std::byte* at = as_mutable_bytes(front_).data() + kFileHeaderBytes;
  store_le(at, static_cast<uint32_t>(kLengthBytes + state_bytes + padding_));
  store_le(at + 4, uint32_t{1});
  store_le(at + 8, header.name.number);
  const uint64_t check = check_of_header(at, header.log_id, kFileHeaderBytes);
  store_le(at + 16, check);
  store_le(at + kBatchHeaderBytes, static_cast<uint32_t>(state_bytes));
  body_.reset(check);
  body_.update({at + kBatchHeaderBytes, kLengthBytes});
}

void SnapshotSealer::add(Bytes piece) { body_.update(piece); }

std::string SnapshotSealer::front() {
  body_.update(as_bytes(zeros()));
  store_le(as_mutable_bytes(front_).data() + kFileHeaderBytes + kSelfCheckedBytes,
           body_.digest64());
  return std::move(front_);
}

std::string encode_snapshot(const FileHeader& header, std::string_view state) {
  SnapshotSealer sealer(header, state.size());
  sealer.add(as_bytes(state));
  std::string file = sealer.front();
  file += state;
  return file + sealer.zeros();
}

Result<std::string_view> decode_snapshot(Bytes file, const FileHeader& header) {
  std::string_view state;
  const auto keep = [&state](uint64_t, std::string_view record) -> Result<void> {
    state = record;
    return {};
  };
  TRY(const SegmentScan scan, scan_segment(file, header, keep));
  if (scan.torn || scan.reserved || scan.next_sequence != header.name.number + 1)
    return fail(Code::corrupt, "at byte {}: the state's checksum is wrong", scan.end);
  return state;
}

}  // namespace tutti::event_log
