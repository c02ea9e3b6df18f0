#include "wire/courier.h"

namespace tutti::wire {

Courier::Courier(std::unique_ptr<Stream> stream, std::unique_ptr<Seal> seal, const Limits& limits)
    : reader_(*this, kMaxFramePayload),
      link_(std::move(stream), std::move(seal)),
      max_message_(limits.max_message),
      max_queued_(limits.max_queued) {}

Task<Result<Courier::Greeted>> Courier::greet(Clock& clock, std::unique_ptr<Stream> stream,
                                              std::unique_ptr<Seal> seal, Side side,
                                              ConnectionOptions options) {
  Greeted greeted;
  greeted.courier.reset(new Courier(std::move(stream), std::move(seal), options.limits));
  Courier& courier = *greeted.courier;
  auto peer = co_await wire::greet(clock, courier.link_, courier.reader_, side, options);
  if (!peer) co_return fail(std::move(peer).error());
  greeted.peer = std::move(*peer);
  co_return std::move(greeted);
}

Task<Result<void>> Courier::run(MessageTaker& taker, Scope& scope) {
  scope_ = &scope;
  start_writing();
  Result<void> end = give_all(taker);  // the hello may have brought some along
  while (end) {
    size_t size = 0;
    if (Stream* stream = link_.plain_stream()) {
      const MutableBytes room = reader_.room();
      auto read = co_await stream->read(room);
      if (read) reader_.received(*read);
      size = read.value_or(0);
      if (!read) end = fail(std::move(read).error());
    } else {
      auto more = co_await link_.receive(reader_);
      size = more.value_or(false) ? 1 : 0;
      if (!more) end = fail(std::move(more).error());
    }
    if (!end) break;
    if (size == 0) {
      end = fail(Code::unavailable, "the other side closed the connection");
      break;
    }
    ++heard_;
    end = give_all(taker);
  }
  scope_ = nullptr;
  over_ = true;
  taker.ended(end.error());
  co_return end;
}

Result<void> Courier::give_all(MessageTaker& taker) {
  while (true) {
    TRY(auto frame, reader_.next());
    if (!frame) return {};
    TRY_DO(give(*frame, taker));
  }
}

Result<void> Courier::give(const Frame& frame, MessageTaker& taker) {
  if (frame.in_place) return {};  // it lies where place() wanted it
  if (frame.type != FrameType::message && frame.type != FrameType::data)
    return fail(Code::corrupt, "a frame of type {} among messages", frame_type_name(frame.type));
  if (partial_.size() + frame.payload.size() > max_message_)
    return fail(Code::corrupt, "a message of more than {} bytes", max_message_);
  if (frame.type == FrameType::message && partial_.empty()) return taker.take(frame.payload);
  partial_.append(as_text(frame.payload));
  if (frame.type == FrameType::data) return {};
  const std::string message = std::exchange(partial_, {});
  return taker.take(as_bytes(message));
}

Result<MutableBytes> Courier::place(const FrameHeader& header) {
  if (partial_.size() + header.length > max_message_)
    return fail(Code::corrupt, "a message of more than {} bytes", max_message_);
  const size_t before = partial_.size();
  partial_.resize(before + header.length);
  return as_mutable_bytes(partial_).subspan(before);
}

bool Courier::post(Bytes message) {
  if (over_) return true;
  // One message may always wait, however long it is.
  if (queued() != 0 && queued() + message.size() > max_queued_) return false;
  while (message.size() > kMaxFramePayload) {
    add_frame(FrameType::data, message.first(kMaxFramePayload));
    message = message.subspan(kMaxFramePayload);
  }
  add_frame(FrameType::message, message);
  start_writing();
  return true;
}

void Courier::start_writing() {
  if (scope_ == nullptr || filling_.empty() || is_writing_) return;
  is_writing_ = true;
  scope_->spawn(write_out());
}

void Courier::add_frame(FrameType type, Bytes payload) {
  std::byte* frame = filling_.extend(kFrameHeaderSize + payload.size());
  if (!payload.empty()) std::memcpy(frame + kFrameHeaderSize, payload.data(), payload.size());
  store_frame_header(frame, type, 0, 0, payload);
}

Task<void> Courier::write_out() {
  while (!filling_.empty()) {
    std::swap(filling_, writing_);
    const Bytes batch = writing_.bytes();
    auto sent = co_await link_.send({&batch, 1});
    if (!sent) co_return;  // run() finds out too; no more is written
    writing_ = Buffer();
  }
  filling_ = Buffer();
  is_writing_ = false;
}

}  // namespace tutti::wire
