// Any bytes are a segment, a snapshot, or refused. Checksums are made right first, or no input
// would get past them. What a scan calls whole must be whole again when the rest is cut off.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/hash.h"
#include "cluster/event_log_format.h"

namespace {

using namespace tutti::event_log;
using tutti::Bytes;
using tutti::Result;

constexpr uint64_t kLogId = 7;

// Gives each batch the checksums that fit it, as far as their lengths lead.
void seal(std::string& file) {
  if (file.size() < kFileHeaderBytes) return;
  const uint64_t number = tutti::load_le<uint64_t>(tutti::as_bytes(file).data() + 24);
  const FileHeader header{{FileKind::segment, number}, kLogId};
  file.replace(0, kFileHeaderBytes, encode_file_header(header));
  std::byte* bytes = tutti::as_mutable_bytes(file).data();
  size_t at = kFileHeaderBytes;
  while (file.size() - at >= kBatchHeaderBytes) {
    const size_t body = tutti::load_le<uint32_t>(bytes + at) % 256;
    const size_t rest = file.size() - at - kBatchHeaderBytes;
    tutti::store_le(bytes + at, static_cast<uint32_t>(body));
    const uint64_t check = tutti::hash64({bytes + at, 16}, kLogId ^ at);
    tutti::store_le(bytes + at + 16, check);
    if (body > rest) return;
    tutti::store_le(bytes + at + 24, tutti::hash64({bytes + at + kBatchHeaderBytes, body}, check));
    at += kBatchHeaderBytes + body;
  }
}

void read(Bytes file) {
  for (const FileKind kind : {FileKind::segment, FileKind::snapshot}) {
    const auto header = decode_file_header(kind, file);
    if (!header) continue;
    const auto state = decode_snapshot(file, *header);
    if (state && state->size() > file.size()) std::abort();
    uint64_t bytes = 0;
    const auto count = [&bytes](uint64_t, std::string_view record) -> Result<void> {
      bytes += record.size();
      return {};
    };
    const auto scan = scan_segment(file, *header, count);
    if (!scan) continue;
    if (bytes > file.size() || scan->end > file.size()) std::abort();
    if (scan->torn != (scan->end < file.size())) std::abort();
    const auto again = scan_segment(file.first(scan->end), *header, count);
    if (!again || again->torn || again->next_sequence != scan->next_sequence) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  read(tutti::as_bytes(file));
  seal(file);
  read(tutti::as_bytes(file));
  return 0;
}
