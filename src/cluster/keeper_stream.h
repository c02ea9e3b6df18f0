// The messages between a keeper and its controller, as bytes on a Unix stream.
//
// A frame is a header of eight bytes, little-endian, and a protobuf message:
//
//   0  u32  bytes of the message, at most kMaxKeeperMessage
//   4  u16  kind
//   6  u16  handles attached, at most kMaxKeeperHandles
//
// There is no checksum: both ends are processes of one host and the kernel carries the bytes.
// One strand may receive while others send; frames of several senders do not mix.
#pragma once

#include <google/protobuf/message_lite.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "world/semaphore.h"
#include "world/stream.h"
#include "world/task.h"

namespace tutti {

enum class KeeperMessage : uint16_t {
  hello = 1,
  spawn = 2,
  signal = 3,
  end = 4,
  acknowledge = 5,
  list = 6,
  create_arena = 7,
  drop_arena = 8,
  shutdown = 9,
  assign = 10,  // from here on of version 2
  reset = 11,

  welcome = 64,
  failure = 65,
  spawned = 66,
  signalled = 67,
  exited = 68,
  arenas = 69,
  done = 70,
};

// The kernel's own limit on one command's arguments and environment is 2 MiB by default.
constexpr size_t kMaxKeeperMessage = 16 << 20;
// The kernel passes at most 253 at a time.
constexpr size_t kMaxKeeperHandles = 250;

struct KeeperFrame {
  KeeperMessage kind{};
  std::string body;
  std::vector<Handle> handles;

  // Code::corrupt when the body is not such a message.
  Result<void> parse(google::protobuf::MessageLite& into) const;
};

class KeeperStream {
 public:
  explicit KeeperStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}

  // Code::unavailable when the other end has closed.
  Task<Result<KeeperFrame>> receive();
  // The same in parts: what has come as a whole, or nothing.
  Result<std::optional<KeeperFrame>> next();
  Stream::Read read_more();
  Result<void> note_read(const Result<size_t>& count);
  // What somebody else has read from it.
  void take_in(Bytes bytes, std::vector<Handle> handles);
  size_t unused_bytes() const { return received_.size() - used_; }
  // Why there is no more, when the stream has ended or broke.
  Error end_error(const Result<void>& why) const;

  // The message is encoded before the first wait. The handles must stay until it is sent.
  Task<Result<void>> send(KeeperMessage kind, const google::protobuf::MessageLite& message,
                          std::span<const Handle> handles = {});
  // Frames of encode_keeper_frame(), in one write.
  Task<Result<void>> send_encoded(std::string frames, std::span<const Handle> handles = {});

  Stream& stream() { return *stream_; }

 private:
  Result<size_t> wanted() const;
  void make_room(size_t wanted);
  Result<KeeperFrame> take_frame(size_t size);

  std::unique_ptr<Stream> stream_;
  Semaphore sending_{1};
  // Between messages of a quiet stream there is no more than kLeastRoom of it.
  std::string received_;
  uint32_t used_ = 0;  // of received_
  uint32_t have_ = 0;  // of received_ before the present read
  uint32_t room_ = 0;  // for the next read; grows while reads fill it
  std::vector<Handle> handles_;
};

void encode_keeper_frame(KeeperMessage kind, const google::protobuf::MessageLite& message,
                         size_t handles, std::string& onto);

// The same handle for another holder, which does not close it: for an array of what to send.
Handle borrow(const Handle& handle);

}  // namespace tutti
