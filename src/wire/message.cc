#include "wire/message.h"

namespace tutti::wire {

void MessageRef::write_to(std::byte* to) const {
  if (proto_ != nullptr) {
    proto_->SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(to));
  } else if (size_ != 0) {
    std::memcpy(to, blob_->bytes().data(), size_);
  }
}

Blob MessageRef::to_blob() const {
  if (blob_ != nullptr) return *blob_;
  Blob blob = Blob::uninitialised(size_);
  write_to(blob.writable().data());
  return blob;
}

Result<void> MessageSink::take(const Received& message) const {
  if (blob_ != nullptr) {
    *blob_ = message.to_blob();
    return {};
  }
  if (proto_->ParseFromArray(message.bytes.data(), static_cast<int>(message.bytes.size())))
    return {};
  return fail(Code::corrupt, "{} bytes do not parse as {}; do both sides have the same version?",
              message.bytes.size(), proto_->GetTypeName());
}

}  // namespace tutti::wire
