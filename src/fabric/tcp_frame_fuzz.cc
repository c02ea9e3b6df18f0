// Any bytes as frames of a link. They are given the checksums they need to be believed, so that
// what is behind those is reached: whatever is read is written the same, and nothing is larger than
// may be.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "fabric/tcp_handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  using namespace tutti::tcp;
  Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  if (size >= kHelloBytes) {
    Hello hello;
    std::copy_n(bytes.begin(), hello.size(), hello.begin());
    TUTTI_ASSERT(!check_hello(hello, Key{}), "nobody guesses an HMAC");
  }
  while (bytes.size() >= kFrameBytes) {
    const auto frame = load_frame(bytes.data());
    if (frame) {
      std::array<std::byte, kFrameBytes> again{};
      store_frame(*frame, again.data());
      TUTTI_ASSERT(std::equal(again.begin(), again.end(), bytes.begin()), "as it was read");
      TUTTI_ASSERT(frame->length <= kChunkBytes, "no frame is larger than a piece");
      TUTTI_ASSERT(!frame->has_piece() || frame->offset + frame->length <= frame->total,
                   "a piece is within its whole");
      // Sealed and opened it is the same.
      if (frame->length == 0 && frame->check == Check{}) {
        Sealer sealer(Key{}, {});
        Opener opener(Key{}, {});
        std::array<std::byte, kFrameBytes + 16> header;
        sealer.seal(*frame, {}, header.data(), nullptr);
        const auto opened = opener.open(header.data());
        TUTTI_ASSERT(opened && *opened == *frame, "what is sealed is opened");
      }
    }
    Opener opener(Key{}, {});
    if (bytes.size() >= opener.header_bytes())
      TUTTI_ASSERT(!opener.open(bytes.data()) || bytes[0] != std::byte{0}, "a checksum of nothing");
    bytes = bytes.subspan(std::min<size_t>(bytes.size(), 8));
  }
  return 0;
}
