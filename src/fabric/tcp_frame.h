// The frames of a link, without what protects them (tcp_seal.h). Little-endian:
//
//    0  u8  type
//    1  u8  priority
//    2  u16 zero
//    4  u32 length    of the payload
//    8  u64 id        of a message, operation or large send
//   16  u64 scope
//   24  u64 number
//   32  u64 offset
//   40  u64 total
//   48  u8[16] check  of the payload: its XXH3-64, or the tag of AES-GCM
//
// Which fields a type uses is said beside it; the others are zero, and a frame where they are not
// is refused, as is everything else that makes no sense by itself.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "fabric/tcp_limits.h"
#include "fabric/transport.h"

namespace tutti::tcp {

enum class FrameType : uint8_t {
  // From who connected.
  message = 1,  // id, tag: a small message in the payload
  take,         // id, tag, total; from offset on: send me the large message, when there is one
  get,          // id, scope (a place in the heap), total; from offset on; how they lie, if apart
  stop,         // id: of a take or get that nobody waits for any more
  put,          // id, scope (a place in the heap), offset, total: one piece in the payload
  received,     // id of a take, number: that large send is here
  waiting,      // id (a large send), tag, total: nobody takes it
  still,        // the same, after a doubt: and it was not taken meanwhile
  ping,         //
  // From who was called.
  delivered,  // id of a message
  refused,    // id, scope (a Refused), number (a Code): why, in the payload
  data,       // id of a take or get, number (a large send), offset, total: one piece
  placed,     // id of a put, offset: of the piece
  released,   // id of a take: that it was received is known
  doubt,      // id of a large send: somebody expects a small message instead
  pong,       //
};
constexpr uint8_t kFrameTypes = static_cast<uint8_t>(FrameType::pong);
std::string_view frame_name(FrameType type);

// Whose id it is that was refused.
enum class Refused : uint8_t { message, pull, put, send };

using Check = std::array<std::byte, 16>;

struct Frame {
  FrameType type = FrameType::ping;
  Priority priority = Priority::normal;
  uint32_t length = 0;
  uint64_t id = 0;
  uint64_t scope = 0;
  uint64_t number = 0;
  uint64_t offset = 0;
  uint64_t total = 0;
  Check check{};

  Tag tag() const { return {scope, number}; }
  // Carries a piece of something large.
  bool has_piece() const { return type == FrameType::put || type == FrameType::data; }
  bool from_caller() const { return type <= FrameType::ping; }
  bool operator==(const Frame&) const = default;
};

constexpr size_t kFrameBytes = 64;
void store_frame(const Frame& frame, std::byte* to);
Result<Frame> load_frame(const std::byte* from);

constexpr uint64_t pieces_of(uint64_t total) { return (total + kChunkBytes - 1) / kChunkBytes; }
// Of the piece that begins there.
constexpr uint64_t piece_bytes(uint64_t offset, uint64_t total) {
  return total - offset < kChunkBytes ? total - offset : kChunkBytes;
}

// For refusals: code and words, cut to what may travel.
Frame refusal(Refused what, uint64_t id, const Error& why);
Error refusal_error(const Frame& frame, Bytes text);
Bytes refusal_text(const Error& why);

// What a message of kRefusalScope says, whose number is the scope: u8 code, u32 who left or all
// ones, u64 from which number on, then words.
std::string store_refusal(const Refusal& refusal);
Result<Refusal> load_refusal(uint64_t scope, Bytes told);

}  // namespace tutti::tcp
