// The bytes of an event log's files, as docs/event-log.md specifies them: pure functions, no disk.
//
// A file is a header and batches. A batch is what one write and one sync made durable: some records
// of successive sequence numbers. A segment has many batches, a snapshot has one, of one record.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/result.h"

namespace tutti::event_log {

constexpr uint32_t kFormatVersion = 1;
constexpr size_t kFileHeaderBytes = 40;
constexpr size_t kBatchHeaderBytes = 32;

enum class FileKind : unsigned char { segment, snapshot };

struct FileName {
  FileKind kind = FileKind::segment;
  uint64_t number = 0;  // a segment's first sequence, or the last that a snapshot stands for
  bool operator==(const FileName&) const = default;
};
std::string file_name(FileName name);  // "segment-00000000000000000001"
std::optional<FileName> parse_file_name(std::string_view text);

struct FileHeader {
  FileName name;
  uint64_t log_id = 0;  // drawn once per log; checksums depend on it
};
std::string encode_file_header(const FileHeader& header);
// Code::corrupt, or Code::unsupported for a format that is newer than this program.
Result<FileHeader> decode_file_header(FileKind kind, Bytes file);

// A batch grows record by record, and is sealed when it is known where it will stand.
void add_record(std::string& batch, std::string_view record);
struct BatchPlace {
  uint64_t log_id = 0;
  uint64_t offset = 0;  // in the file
  uint64_t first_sequence = 0;
  uint32_t records = 0;
};
void seal_batch(std::string& batch, const BatchPlace& place);

using RecordVisitor = std::function<Result<void>(uint64_t sequence, std::string_view record)>;

struct SegmentScan {
  uint64_t next_sequence = 0;  // after the last whole batch
  uint64_t last_batch = 0;     // where that begins; 0 when there is none
  uint64_t end = 0;            // where that ends
  bool torn = false;           // the file goes on, with what may be a batch that a crash cut short
  bool reserved = false;       // it goes on with nothing but zeros
};
// Visits every record of the whole batches, in order. Code::corrupt when what is broken was
// certainly whole once: a later batch has begun behind it.
Result<SegmentScan> scan_segment(Bytes file, const FileHeader& header, const RecordVisitor& visit);

// A snapshot whose state comes in pieces, because it is too large to be copied. It stands behind
// kSnapshotFront bytes, which are known when all of it was added, and before some zeros.
constexpr size_t kSnapshotFront = kFileHeaderBytes + kBatchHeaderBytes + 4;
class SnapshotSealer {
 public:
  SnapshotSealer(const FileHeader& header, uint64_t state_bytes);
  void add(Bytes piece);  // the next of the state
  std::string zeros() const { return std::string(padding_, '\0'); }
  std::string front();

 private:
  std::string front_;
  uint64_t padding_;
  Hasher body_;
};
std::string encode_snapshot(const FileHeader& header, std::string_view state);
// The state, inside the bytes given.
Result<std::string_view> decode_snapshot(Bytes file, const FileHeader& header);

}  // namespace tutti::event_log
