// The frames a connection is made of. docs/wire.md specifies them; the layout is
//
//   0  u32 checksum   XXH3-64 of the payload, seeded with bytes 4..15, folded to 32 bits
//   4  u32 length     of the payload
//   8  u32 stream     slot (low 16 bits) and generation (high 16) of the call; 0 for the connection
//  12  u8  type
//  13  u8  flags
//  14  u16 reserved   zero
//
// FrameReader cuts received bytes into frames without copying them: a payload is a view of the
// memory it was received into. Everything is checked before it is believed: a length over the limit
// is refused as soon as the header is there, before any memory is taken for it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/buffer.h"

namespace tutti::wire {

enum class FrameType : uint8_t {
  hello = 1,  // who I am; the first frame each way
  reject,     // why I will not speak with you; the last frame
  request,    // opens a call
  message,    // one more message of a streaming call
  data,       // a piece of a large message
  end,        // the call ended well, perhaps with a last message
  failure,    // the call ended with an error
  cancel,     // the caller gave up
  credit,     // more bytes may be sent on this call
  ping,       // are you there?
  pong,       // yes
  goaway,     // open no more calls
};
constexpr uint8_t kLastFrameType = static_cast<uint8_t>(FrameType::goaway);
std::string_view frame_type_name(FrameType type);

struct FrameFlags {
  static constexpr uint8_t opener = 1;   // the sender of this frame opened the call
  static constexpr uint8_t message = 2;  // a whole message is in this frame
  static constexpr uint8_t large = 4;    // announces a message that follows in data frames
  static constexpr uint8_t last = 8;     // the sender sends no further message on this call
  static constexpr uint8_t all = 15;
};

constexpr size_t kFrameHeaderSize = 16;
// Bounds what one frame can hold up: other calls wait for it. Larger pieces measured no faster.
constexpr size_t kMaxFramePayload = 256 * 1024;

struct FrameHeader {
  uint32_t checksum = 0;
  uint32_t length = 0;
  uint32_t stream = 0;
  FrameType type = FrameType::hello;
  uint8_t flags = 0;

  void store(std::byte* to) const;
  static FrameHeader load(const std::byte* from);
};

uint32_t frame_checksum(const FrameHeader& header, Bytes payload);
// Writes the header, checksum included, of a payload that is complete.
void store_frame_header(std::byte* to, FrameType type, uint8_t flags, uint32_t stream,
                        Bytes payload);
// A whole frame of the connection itself.
std::string frame_bytes(FrameType type, std::string_view payload);

struct Frame {
  FrameType type = FrameType::hello;
  uint8_t flags = 0;
  uint32_t stream = 0;
  bool in_place = false;  // the payload is where DataSink::place wanted it
  Bytes payload;          // valid until the reader is used again

  bool has(uint8_t flag) const { return (flags & flag) != 0; }
};

// Says where the payload of a data frame belongs, so that it is received right there.
class DataSink {
 public:
  // Exactly header.length bytes, which live until the frame is given or the reader dies; an empty
  // span when nobody wants them.
  virtual Result<MutableBytes> place(const FrameHeader& header) = 0;

 protected:
  ~DataSink() = default;
};

class FrameReader {
 public:
  FrameReader(DataSink& sink, uint32_t max_payload) : sink_(sink), max_payload_(max_payload) {}

  // Where to receive into; then say how much came.
  MutableBytes room();
  void received(size_t size);
  // The same for bytes that are in memory already.
  void append(Bytes bytes);

  // After a quiet time: gives back the memory of busier ones, unless somebody receives into it.
  void release_idle(bool receiving);
  size_t capacity() const { return inbox_.capacity(); }

  // The next frame, or nothing when more bytes are needed. After an error the reader is done.
  Result<std::optional<Frame>> next();

  void set_max_payload(uint32_t max_payload) { max_payload_ = max_payload; }
  // Whether a frame has begun and is not complete.
  bool mid_frame() const { return header_.has_value() || inbox_.size() > given_; }
  // Of the first byte that is not part of a frame given, in the stream.
  uint64_t offset() const { return offset_; }

 private:
  Result<void> read_header();
  Result<std::optional<Frame>> finish(Bytes payload, bool in_place);
  Result<void> receive_in_place();
  size_t missing() const;

  DataSink& sink_;
  uint32_t max_payload_;
  ReadSize read_size_;
  size_t asked_ = 0;  // of the inbox, 0 for a payload in place
  size_t got_ = 0;    // by the last read, as far as it says something of the next
  Buffer inbox_;
  size_t given_ = 0;  // bytes of the inbox that belong to the frame given last
  uint64_t offset_ = 0;
  std::optional<FrameHeader> header_;  // of the frame that has begun
  MutableBytes direct_;                // where its payload goes, if not to the inbox
  size_t direct_filled_ = 0;
  bool asked_sink_ = false;
  bool in_bulk_ = false;  // the last frame was received in place: another may follow
};

}  // namespace tutti::wire
