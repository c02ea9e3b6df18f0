#include "wire/link.h"

#include <array>

namespace tutti::wire {

namespace {

// What a connection keeps of the memory of a busy moment, until it is quiet.
constexpr size_t kKept = 16 * 1024;
// What is read and ignored after our last words. A peer that goes on for longer does not listen.
constexpr size_t kMaxIgnored = 256 * 1024;

void empty(std::string& text) {
  text.clear();
  if (text.capacity() > kKept) text.shrink_to_fit();
}

}  // namespace

Task<Result<Identity>> Link::handshake(FrameReader& reader) {
  auto identity = co_await seal_->handshake(*stream_);
  if (!identity) co_return identity;
  CO_TRY_DO(open({}, reader));
  if (!seal_->transforms()) seal_.reset();
  co_return identity;
}

Task<Result<bool>> Link::receive(FrameReader& reader) {
  if (seal_ == nullptr) {
    const MutableBytes room = reader.room();
    auto size = co_await stream_->read(room);
    if (!size) co_return fail(size.error());
    reader.received(*size);
    co_return *size != 0;
  }
  while (!heard_goodbye_) {
    read_size_.shrink(travelled_in_);
    const MutableBytes room = travelled_in_.room(read_size_.get()).first(read_size_.get());
    auto size = co_await stream_->read(room);
    if (!size) co_return fail(size.error());
    if (*size == 0)
      co_return fail(Code::unavailable,
                     "the stream ended without a goodbye: the other side died, or it was cut off");
    read_size_.was(room.size(), *size);
    CO_TRY(const bool some, open(Bytes(room.first(*size)), reader));
    if (some) co_return true;
    // Records that hold nothing must not keep others from their turn.
    co_await yield();
  }
  co_return false;
}

Result<bool> Link::open(Bytes travelled, FrameReader& reader) {
  auto opened = seal_->open(travelled, opened_);
  heard_goodbye_ = !opened && opened.error().code() == Code::unavailable;
  if (!opened && !heard_goodbye_) return fail(opened.error());
  const bool some = !opened_.empty();
  reader.append(as_bytes(opened_));
  empty(opened_);
  return some;
}

Task<Result<void>> Link::send(std::span<const Bytes> parts) {
  sending_ = true;
  if (seal_ == nullptr) {
    auto written = co_await stream_->write(parts);
    sending_ = !written;
    co_return written;
  }
  auto sealed = seal_->seal(parts, travelled_out_);
  if (!sealed) {
    sending_ = false;
    empty(travelled_out_);
    co_return sealed;
  }
  const Bytes travelling = as_bytes(travelled_out_);
  auto written = co_await stream_->write(travelling);
  empty(travelled_out_);
  sending_ = !written;
  co_return written;
}

Task<Result<void>> Link::finish() {
  finished_ = true;
  if (seal_ != nullptr) seal_->close(travelled_out_);
  const Bytes goodbye = as_bytes(travelled_out_);
  if (!goodbye.empty()) {
    auto written = co_await stream_->write(goodbye);
    empty(travelled_out_);
    if (!written) co_return written;
  }
  co_return stream_->shutdown_write();
}

Task<Result<void>> Link::part() {
  auto finished = co_await finish();
  if (!finished) co_return finished;
  std::array<std::byte, 1024> ignored;
  const MutableBytes into = ignored;
  for (size_t total = 0; total < kMaxIgnored;) {
    auto size = co_await stream_->read(into);
    if (!size) co_return fail(size.error());
    if (*size == 0) break;
    total += *size;
    co_await yield();
  }
  co_return Result<void>();
}

void Link::release_idle(FrameReader& reader) {
  read_size_.rest();
  opened_.shrink_to_fit();
  if (!sending_) travelled_out_.shrink_to_fit();
  // Unsealed bytes are received right into the reader.
  reader.release_idle(seal_ == nullptr);
}

size_t Link::capacity() const {
  return travelled_in_.capacity() + opened_.capacity() + travelled_out_.capacity();
}

}  // namespace tutti::wire
