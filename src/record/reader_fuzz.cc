// Any bytes are a recording or refused. Hashes are made right first, or no input would get past
// them: the fuzzer gets to choose what a hostile writer can choose.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/hash.h"
#include "record/dump.h"
#include "record/layout.h"
#include "record/reader.h"

namespace {

using namespace tutti::record_layout;

void seal(std::string& bytes, size_t from, size_t check_at) {
  if (bytes.size() < check_at + sizeof(uint64_t)) return;
  auto* start = reinterpret_cast<std::byte*>(bytes.data());
  tutti::store_le(start + check_at, tutti::hash64({start + from, check_at - from}));
}

void seal_all(std::string& bytes) {
  seal(bytes, 0, offsetof(Header, check));
  for (size_t at = kHeaderBytes; at + sizeof(Slot) <= bytes.size(); at += sizeof(Slot)) {
    SlotWords words;
    std::memcpy(&words, bytes.data() + at, sizeof words);
    const uint64_t check = check_of(words);
    std::memcpy(bytes.data() + at + offsetof(Slot, check), &check, sizeof check);
  }
  if (bytes.size() < sizeof(Header)) return;
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const uint64_t entries = uint64_t{header.kinds} + header.cells;
  for (size_t i = 0, at = kHeaderBytes; i < entries && at < bytes.size(); ++i, at += sizeof(Entry))
    seal(bytes, at + offsetof(Entry, type), at + offsetof(Entry, check));
}

void read(const std::string& bytes) {
  const auto recording = tutti::parse_recording(tutti::as_bytes(bytes));
  if (!recording) return;
  for (const auto& record : recording->records)
    if (record.kind >= recording->kinds.size()) std::abort();
  const std::string text = tutti::dump_heading(*recording) +
                           tutti::dump_records(*recording, recording->records) +
                           tutti::dump_records_json(*recording, recording->records) +
                           tutti::dump_totals_json(*recording, 0);
  if (text.empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  seal_all(bytes);
  read(bytes);
  return 0;
}
