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
  auto identity = co_await sealed_->seal->handshake(*stream_);
  if (!identity) co_return identity;
  CO_TRY_DO(open({}, reader));
  if (!sealed_->seal->transforms()) sealed_.reset();
  co_return identity;
}

Task<Result<bool>> Link::receive(FrameReader& reader) {
  if (sealed_ == nullptr) {
    const MutableBytes room = reader.room();
    auto size = co_await stream_->read(room);
    if (!size) co_return fail(size.error());
    reader.received(*size);
    co_return *size != 0;
  }
  while (!heard_goodbye_) {
    ReadSize& read_size = sealed_->read_size;
    read_size.shrink(sealed_->travelled_in);
    const MutableBytes room = sealed_->travelled_in.room(read_size.get()).first(read_size.get());
    auto size = co_await stream_->read(room);
    if (!size) co_return fail(size.error());
    if (*size == 0)
      co_return fail(Code::unavailable,
                     "the stream ended without a goodbye: the other side died, or it was cut off");
    read_size.was(room.size(), *size);
    CO_TRY(const bool some, open(Bytes(room.first(*size)), reader));
    if (some) co_return true;
    // Records that hold nothing must not keep others from their turn.
    co_await yield();
  }
  co_return false;
}

Result<bool> Link::open(Bytes travelled, FrameReader& reader) {
  std::string& text = sealed_->opened;
  auto opened = sealed_->seal->open(travelled, text);
  heard_goodbye_ = !opened && opened.error().code() == Code::unavailable;
  if (!opened && !heard_goodbye_) return fail(opened.error());
  const bool some = !text.empty();
  reader.append(as_bytes(text));
  empty(text);
  return some;
}

Task<Result<void>> Link::send(std::span<const Bytes> parts) {
  sending_ = true;
  if (sealed_ == nullptr) {
    auto written = co_await stream_->write(parts);
    sending_ = !written;
    co_return written;
  }
  std::string& travelled_out = sealed_->travelled_out;
  auto sealed = sealed_->seal->seal(parts, travelled_out);
  if (!sealed) {
    sending_ = false;
    empty(travelled_out);
    co_return sealed;
  }
  const Bytes travelling = as_bytes(travelled_out);
  auto written = co_await stream_->write(travelling);
  empty(travelled_out);
  sending_ = !written;
  co_return written;
}

Task<Result<void>> Link::finish() {
  finished_ = true;
  if (sealed_ != nullptr) sealed_->seal->close(sealed_->travelled_out);
  if (sealed_ != nullptr && !sealed_->travelled_out.empty()) {
    const Bytes goodbye = as_bytes(sealed_->travelled_out);
    auto written = co_await stream_->write(goodbye);
    empty(sealed_->travelled_out);
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
  // Unsealed bytes are received right into the reader.
  reader.release_idle(sealed_ == nullptr);
  if (sealed_ == nullptr) return;
  sealed_->read_size.rest();
  sealed_->opened.shrink_to_fit();
  if (!sending_) sealed_->travelled_out.shrink_to_fit();
}

size_t Link::capacity() const {
  if (sealed_ == nullptr) return 0;
  return sealed_->travelled_in.capacity() + sealed_->opened.capacity() +
         sealed_->travelled_out.capacity();
}

}  // namespace tutti::wire
