// Bytes that belong to a message. A Blob is shared and never changes, so that a large payload can
// be queued for sending, kept by its caller and looked at by others without a copy. As a message
// type of an RPC method it travels as it is, without protobuf.
#pragma once

#include <cstring>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "wire/large_buffers.h"

namespace tutti::wire {

class Blob {
 public:
  Blob() = default;

  static Blob copy_of(Bytes bytes) {
    Blob blob = uninitialised(bytes.size());
    if (!bytes.empty()) std::memcpy(blob.memory_.get(), bytes.data(), bytes.size());
    return blob;
  }
  // Room to be filled through writable() before anyone else sees it.
  static Blob uninitialised(size_t size) {
    Blob blob;
    if (size == 0) return blob;
    blob.memory_ = size < kLargeBuffer ? std::make_shared_for_overwrite<std::byte[]>(size)
                                       : take_large_buffer(size);
    blob.size_ = size;
    return blob;
  }

  MutableBytes writable() {
    TUTTI_ASSERT(memory_ == nullptr || memory_.use_count() == 1, "a shared blob never changes");
    return {memory_.get(), size_};
  }
  Bytes bytes() const { return {memory_.get(), size_}; }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<std::byte[]> memory_;
  size_t size_ = 0;
};

}  // namespace tutti::wire
