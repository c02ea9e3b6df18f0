#include "wire/link.h"

namespace tutti::wire {

namespace {

// What a quiet connection keeps of the memory of a busy moment.
constexpr size_t kKept = 16 * 1024;

void empty(std::string& text) {
  text.clear();
  if (text.capacity() > kKept) text.shrink_to_fit();
}

}  // namespace

void Link::release_idle() {
  read_size_ = ReadSize();
  for (std::string* text : {&opened_, &travelled_out_})
    if (text->empty()) text->shrink_to_fit();
}

Task<Result<Identity>> Link::handshake(FrameReader& reader) {
  auto identity = co_await seal_->handshake(*stream_);
  if (!identity) co_return identity;
  CO_TRY_DO(open({}, reader));
  co_return identity;
}

Task<Result<bool>> Link::receive(FrameReader& reader) {
  if (!seal_->transforms()) {
    const MutableBytes room = reader.room();
    auto size = co_await stream_->read(room);
    if (!size) co_return fail(size.error());
    reader.received(*size);
    co_return *size != 0;
  }
  for (;;) {
    read_size_.shrink(travelled_in_);
    const MutableBytes room = travelled_in_.room(read_size_.get()).first(read_size_.get());
    auto size = co_await stream_->read(room);
    if (!size) co_return fail(size.error());
    if (*size == 0) co_return false;
    read_size_.was(room.size(), *size);
    CO_TRY(const bool some, open(Bytes(room.first(*size)), reader));
    if (some) co_return true;
  }
}

Result<bool> Link::open(Bytes travelled, FrameReader& reader) {
  auto opened = seal_->open(travelled, opened_);
  // The other side said goodbye inside the seal: the end of the stream follows.
  const bool closed = !opened && opened.error().code() == Code::unavailable;
  if (!opened && !closed) return fail(opened.error());
  const bool some = !opened_.empty();
  reader.append(as_bytes(opened_));
  empty(opened_);
  return some;
}

Task<Result<void>> Link::send(std::span<const Bytes> parts) {
  if (!seal_->transforms()) {
    auto written = co_await stream_->write(parts);
    co_return written;
  }
  CO_TRY_DO(seal_->seal(parts, travelled_out_));
  const Bytes sealed = as_bytes(travelled_out_);
  auto written = co_await stream_->write(sealed);
  empty(travelled_out_);
  co_return written;
}

Task<Result<void>> Link::finish() {
  seal_->close(travelled_out_);
  const Bytes goodbye = as_bytes(travelled_out_);
  if (!goodbye.empty()) {
    auto written = co_await stream_->write(goodbye);
    if (!written) co_return written;
  }
  co_return stream_->shutdown_write();
}

}  // namespace tutti::wire
