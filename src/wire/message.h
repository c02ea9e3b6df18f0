// Messages on their way out of and into typed objects: protobuf messages, or a Blob as it is.
//
// MessageRef and MessageSink hide which of the two it is, so that everything between the typed
// calls (call.h, call_stream.h, methods.h) and the bytes is compiled once.
#pragma once

#include <google/protobuf/message_lite.h>

#include <concepts>
#include <string_view>

#include "base/result.h"
#include "wire/blob.h"
#include "wire/budget.h"

namespace tutti::wire {

template <class T>
concept Message = std::same_as<T, Blob> || std::derived_from<T, google::protobuf::MessageLite>;

// A message to be sent; the object must live until it was taken.
class MessageRef {
 public:
  MessageRef() = default;  // no message
  MessageRef(const Blob& blob) : blob_(&blob), size_(blob.size()) {}
  MessageRef(const google::protobuf::MessageLite& proto)
      : proto_(&proto), size_(proto.ByteSizeLong()) {}

  bool exists() const { return blob_ != nullptr || proto_ != nullptr; }
  size_t size() const { return size_; }
  void write_to(std::byte* to) const;
  Blob to_blob() const;

 private:
  const Blob* blob_ = nullptr;
  const google::protobuf::MessageLite* proto_ = nullptr;
  size_t size_ = 0;
};

// A message that came: in the receive buffer, to be looked at before the next read, or owned.
struct Received {
  Bytes bytes;
  const Blob* owned = nullptr;
  uint64_t window = 0;     // bytes of the call's window that it takes
  Lease* lease = nullptr;  // what it takes of a budget instead; whoever keeps it keeps that too

  Blob to_blob() const { return owned != nullptr ? *owned : Blob::copy_of(bytes); }
};

// Where a received message goes.
class MessageSink {
 public:
  MessageSink(Blob& blob) : blob_(&blob) {}
  MessageSink(google::protobuf::MessageLite& proto) : proto_(&proto) {}

  // Code::corrupt when the bytes are not such a message.
  Result<void> take(const Received& message) const;

 private:
  Blob* blob_ = nullptr;
  google::protobuf::MessageLite* proto_ = nullptr;
};

}  // namespace tutti::wire
