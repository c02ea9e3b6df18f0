// Any bytes as a stream of frames. The first byte says how the rest is cut into reads and how large
// a payload may be; the reader must give frames that hold their checksums, or an error, and give
// the same however the bytes are cut.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "wire/frame.h"

namespace tutti::wire {
namespace {

class Sink final : public DataSink {
 public:
  Result<MutableBytes> place(const FrameHeader& header) override {
    if (header.stream % 3 == 0) return MutableBytes();
    if (header.stream % 3 == 1) return fail(Code::corrupt, "not wanted");
    buffer_.resize(header.length);
    return as_mutable_bytes(buffer_);
  }

 private:
  std::string buffer_;
};

struct Outcome {
  std::vector<uint64_t> frames;
  std::string error;
  uint64_t offset = 0;
  bool operator==(const Outcome&) const = default;
};

// False when more bytes are needed.
bool take(FrameReader& reader, Outcome& outcome) {
  auto next = reader.next();
  if (!next) outcome.error = next.error().text();
  if (!next || !*next) return false;
  const Frame& frame = **next;
  FrameHeader header{0, static_cast<uint32_t>(frame.payload.size()), frame.stream, frame.type,
                     frame.flags};
  const uint64_t kind = uint64_t{frame_checksum(header, frame.payload)} << 32 | frame.stream;
  outcome.frames.push_back(kind);
  outcome.offset = reader.offset();
  return true;
}

Outcome read(Bytes bytes, size_t step, uint32_t max_payload) {
  Sink sink;
  FrameReader reader(sink, max_payload);
  Outcome outcome;
  while (!bytes.empty() && outcome.error.empty()) {
    const MutableBytes room = reader.room();
    TUTTI_ASSERT(!room.empty(), "there is always room for more");
    TUTTI_ASSERT(room.size() <= std::max<size_t>(max_payload, 64 << 10) + kFrameHeaderSize,
                 "no more room than the limits allow");
    const size_t size = std::min({room.size(), bytes.size(), step});
    std::copy_n(bytes.begin(), size, room.begin());
    reader.received(size);
    bytes = bytes.subspan(size);
    while (take(reader, outcome)) continue;
  }
  return outcome;
}

}  // namespace
}  // namespace tutti::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  if (size == 0) return 0;
  const Bytes bytes = Bytes(reinterpret_cast<const std::byte*>(data), size).subspan(1);
  const size_t step = 1 + data[0] % 64;
  const uint32_t max_payload = (data[0] & 128) != 0 ? 100 : wire::kMaxFramePayload;
  const wire::Outcome cut = wire::read(bytes, step, max_payload);
  const wire::Outcome whole = wire::read(bytes, bytes.size(), max_payload);
  // A sink that refuses is asked only when a payload does not come with its header.
  if (cut.error.find("not wanted") == std::string::npos &&
      whole.error.find("not wanted") == std::string::npos)
    TUTTI_ASSERT(cut == whole, "how bytes are cut makes no difference");
  return 0;
}
