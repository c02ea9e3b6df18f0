#include "wire/courier.h"

#include "base/queue_mark.h"

namespace tutti::wire {
namespace {

Error closed_error() { return {Code::unavailable, "the other side closed the connection"}; }

}  // namespace

Courier::Courier(std::unique_ptr<Stream> stream, std::unique_ptr<Seal> seal, const Limits& limits)
    : reader_(new FrameReader(*this, kMaxFramePayload)),
      link_(std::move(stream), std::move(seal)),
      max_message_(limits.max_message),
      max_queued_(limits.max_queued) {}

Task<Result<Courier::Greeted>> Courier::greet(Clock& clock, std::unique_ptr<Stream> stream,
                                              std::unique_ptr<Seal> seal, Side side,
                                              ConnectionOptions options) {
  Greeted greeted;
  greeted.courier.reset(new Courier(std::move(stream), std::move(seal), options.limits));
  Courier& courier = *greeted.courier;
  auto peer = co_await wire::greet(clock, courier.link_, *courier.reader_, side, options);
  if (!peer) co_return fail(std::move(peer).error());
  greeted.peer = std::move(*peer);
  co_return std::move(greeted);
}

void Courier::start(MessageTaker& taker, Scope& scope) {
  scope_ = &scope;
  taker_ = &taker;
  start_writing();
  Stream* plain = link_.plain_stream();
  if (plain == nullptr) return scope.spawn(run_sealed());
  if (reader_->mid_frame()) {
    scope.spawn(give_first());  // it came behind the hello
  } else {
    reader_.reset();
  }
  plain->serve(*this, scope, nullptr);
}

Task<void> Courier::give_first() {
  auto given = give_all();
  if (!given && !over_) end(given.error());
  let_reader_go();
  co_return;
}

void Courier::let_reader_go() {
  if (reader_ != nullptr && !reader_->mid_frame()) reader_.reset();
}

void Courier::on_bytes(Bytes bytes, std::vector<Handle>) {
  if (over_) return;
  ++heard_;
  DataSink& sink = *this;
  if (reader_ == nullptr) reader_ = std::make_unique<FrameReader>(sink, kMaxFramePayload);
  reader_->append(bytes);
  if (auto given = give_all(); !given && !over_) end(given.error());
  let_reader_go();
}

void Courier::on_end(Result<void> why) {
  if (!over_) end(why ? closed_error() : why.error());
}

Task<void> Courier::run_sealed() {
  while (true) {
    auto given = give_all();
    if (!given) co_return end(given.error());
    auto more = co_await link_.receive(*reader_);
    if (over_) co_return;
    if (!more || !*more) co_return end(more ? closed_error() : more.error());
    ++heard_;
  }
}

// Whoever cuts it is in the midst of something, and hears of the end later.
void Courier::cut(Error why) {
  if (over_ || scope_ == nullptr) return;
  Scope& scope = *scope_;
  scope.spawn(end_soon(why));
  scope.cancel(std::move(why));
}

Task<void> Courier::end_soon(Error why) {
  if (!over_) end(why);
  co_return;
}

void Courier::end(const Error& why) {
  Scope& scope = *std::exchange(scope_, nullptr);
  over_ = true;
  taker_->ended(why);
  scope.cancel(why);
}

Result<void> Courier::give_all() {
  while (reader_ != nullptr) {
    TRY(auto frame, reader_->next());
    if (!frame) return {};
    TRY_DO(give(*frame));
  }
  return {};
}

Result<void> Courier::give(const Frame& frame) {
  if (frame.in_place) return {};  // it lies where place() wanted it
  if (frame.type != FrameType::message && frame.type != FrameType::data)
    return fail(Code::corrupt, "a frame of type {} among messages", frame_type_name(frame.type));
  if (partial_size() + frame.payload.size() > max_message_)
    return fail(Code::corrupt, "a message of more than {} bytes", max_message_);
  if (frame.type == FrameType::message && partial_ == nullptr) return taker_->take(frame.payload);
  partial().append(as_text(frame.payload));
  if (frame.type == FrameType::data) return {};
  const std::unique_ptr<std::string> message = std::move(partial_);
  return taker_->take(as_bytes(*message));
}

Result<MutableBytes> Courier::place(const FrameHeader& header) {
  const size_t before = partial_size();
  if (before + header.length > max_message_)
    return fail(Code::corrupt, "a message of more than {} bytes", max_message_);
  partial().resize(before + header.length);
  return as_mutable_bytes(*partial_).subspan(before);
}

bool Courier::post(Bytes message) {
  if (over_) return true;
  // One message may always wait, however long it is.
  if (queued() != 0 && queued() + message.size() > max_queued_) return false;
  const uint64_t most = std::max<uint64_t>(max_queued_, message.size());
  const uint64_t frames = message.size() / kMaxFramePayload + 1;
  while (message.size() > kMaxFramePayload) {
    add_frame(FrameType::data, message.first(kMaxFramePayload));
    message = message.subspan(kMaxFramePayload);
  }
  add_frame(FrameType::message, message);
  TUTTI_QUEUE("courier: bytes that wait for a peer", queued(), most + frames * kFrameHeaderSize);
  start_writing();
  return true;
}

std::string& Courier::partial() {
  if (partial_ == nullptr) partial_ = std::make_unique<std::string>();
  return *partial_;
}

void Courier::start_writing() {
  if (scope_ == nullptr || waiting_ == nullptr || waiting_->busy) return;
  waiting_->busy = true;
  scope_->spawn(write_out());
}

void Courier::add_frame(FrameType type, Bytes payload) {
  std::array<std::byte, kFrameHeaderSize> header;
  store_frame_header(header.data(), type, 0, 0, payload);
  if (send_at_once(header, payload)) return;
  if (waiting_ == nullptr) waiting_ = std::make_unique<Waiting>();
  waiting_->filling.append(header);
  waiting_->filling.append(payload);
}

// Mostly there is room, and no strand is needed to wait for it.
bool Courier::send_at_once(Bytes header, Bytes payload) {
  Stream* stream = link_.plain_stream();
  if (scope_ == nullptr || waiting_ != nullptr || stream == nullptr) return false;
  const std::array<Bytes, 2> parts = {header, payload};
  auto sent = stream->write_now(parts);
  // What went wrong, whoever reads finds out too.
  if (!sent || *sent == header.size() + payload.size()) return true;
  waiting_ = std::make_unique<Waiting>();
  if (*sent < header.size()) waiting_->filling.append(header.subspan(*sent));
  waiting_->filling.append(payload.subspan(*sent - std::min(*sent, header.size())));
  return true;
}

Task<void> Courier::write_out() {
  while (!waiting_->filling.empty()) {
    std::swap(waiting_->filling, waiting_->writing);
    const Bytes batch = waiting_->writing.bytes();
    auto sent = co_await link_.send({&batch, 1});
    if (!sent) co_return;  // who reads finds out too; no more is written
    waiting_->writing = Buffer();
  }
  waiting_.reset();
}

}  // namespace tutti::wire
