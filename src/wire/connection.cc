#include "wire/connection.h"

#include <algorithm>

#include "base/queue_mark.h"
#include "wire/wire.pb.h"
#include "world/fault.h"

namespace tutti::wire {

namespace {

// From our half-close, or theirs, to the end of both directions: what is left takes a round trip.
constexpr Duration kPartingTime = 5s;
// A person reads it.
constexpr size_t kMaxReason = 1024;

std::string goaway_payload(std::string_view reason) {
  proto::GoAway goaway;
  goaway.set_reason(std::string(reason.substr(0, kMaxReason)));
  return goaway.SerializeAsString();
}

}  // namespace

Connection::Connection(Clock& clock, std::unique_ptr<Stream> stream, std::unique_ptr<Seal> seal,
                       const Methods* methods, const Limits& limits)
    : clock_(clock),
      limits_(limits),
      methods_(methods),
      reader_(*this, kMaxFramePayload),
      link_(std::move(stream), std::move(seal)) {}

// Calls are left only when a crash destroys frames without running them.
Connection::~Connection() {
  for (Outgoing& slot : outgoing_)
    if (slot.exchange != nullptr) slot.exchange->orphan();
  for (const auto& call : incoming_records_) call->orphan();
}

Task<Result<std::unique_ptr<Connection>>> Connection::greet(Clock& clock,
                                                            std::unique_ptr<Stream> stream,
                                                            std::unique_ptr<Seal> seal, Side side,
                                                            const Methods* methods,
                                                            ConnectionOptions options) {
  options.limits = sensible(options.limits);
  std::unique_ptr<Connection> connection(
      new Connection(clock, std::move(stream), std::move(seal), methods, options.limits));
  auto peer = co_await wire::greet(clock, connection->link_, connection->reader_, side, options);
  if (!peer) co_return fail(peer.error());
  connection->peer_ = std::move(*peer);
  co_return connection;
}

Task<Result<void>> Connection::run() {
  TUTTI_ASSERT(running_ == nullptr && !end_, "a connection runs once");
  Result<void> outcome;
  {
    Scope scope;
    running_ = &scope;
    scope.spawn(read_loop());
    scope.spawn(write_loop());
    clock_.arm(keepalive_, clock_.now() + limits_.keepalive_interval);
    end_by(end_by_);
    outcome = co_await scope.join();
    running_ = nullptr;
  }
  clock_.disarm(keepalive_);
  const Error why = outcome ? Error(Code::unavailable, "the connection was closed")
                    : outcome.error().code() == Code::cancelled
                        ? Error(Code::unavailable, "the connection was cut off on this side")
                        : outcome.error();
  end_calls(why);
  if (!outcome && outcome.error().code() == Code::corrupt) co_await say_why(outcome.error());
  clock_.disarm(close_by_);
  link_.drop();
  {
    const Shield until_handlers_return;
    handlers_done_.emplace();
    if (incoming_busy_ == 0) handlers_done_->set();
    auto done = co_await handlers_done_->wait();
    TUTTI_ASSERT(done, "a shielded wait is not cancelled");
  }
  ended_event_.set();
  if (outcome) co_return outcome;
  co_return fail(outcome.error().context("connection to " + peer_.text()));
}

void Connection::end_calls(const Error& why) {
  end_ = why.code() == Code::unavailable ? why : Error(Code::unavailable, why.text());
  for (size_t slot = 0; slot < outgoing_.size(); ++slot)
    if (outgoing_[slot].exchange != nullptr)
      std::exchange(outgoing_[slot].exchange, nullptr)->close(fail(*end_));
  outgoing_.clear();
  outgoing_busy_ = 0;
  for (size_t slot = 0; slot < incoming_.size(); ++slot)
    if (incoming_[slot] != nullptr) incoming_[slot]->close(fail(*end_));
  while (!slot_waiters_.empty()) slot_waiters_.pop_front().refuse(*end_);
}

Task<Result<void>> Connection::read_loop() {
  for (;;) {
    for (;;) {
      auto frame = reader_.next();
      if (!frame) co_return fail(frame.error());
      if (!*frame) break;
      auto handled = handle(**frame);
      if (!handled) co_return fail(broken_by(**frame, handled.error()));
    }
    // Handlers and callers that were woken go first, then the writer with what they had to say:
    // one write for all of them, before the next read.
    co_await yield();
    if (!outbox_.empty()) co_await yield();
    auto more = co_await link_.receive(reader_);
    if (!more) co_return fail(more.error());
    if (!*more) co_return end_of_stream();
    heard_ = true;
  }
}

Error Connection::broken_by(const Frame& frame, const Error& error) const {
  // The side that connected has not liked our hello.
  if (frame.type == FrameType::reject) return rejection(frame.payload, peer_.text());
  return error.context("the peer broke the protocol");
}

// Tells the peer what is wrong with what it said, if that can still be told.
Task<void> Connection::say_why(Error why) {
  if (!link_.can_speak()) co_return;
  Scope scope;
  running_ = &scope;
  scope.spawn(last_words(why.text()));
  end_by(clock_.now() + kPartingTime);
  auto told = co_await scope.join();
  running_ = nullptr;
  static_cast<void>(told);  // nobody is owed more than the try
}

Task<Result<void>> Connection::last_words(std::string reason) {
  const std::string goaway = frame_bytes(FrameType::goaway, goaway_payload(reason));
  const Bytes part = as_bytes(goaway);
  auto sent = co_await link_.send({&part, 1});
  // When the seal itself was broken it seals nothing more, and its alert takes the goaway's place.
  static_cast<void>(sent);
  auto parted = co_await link_.part();
  co_return parted;
}

// The end is in order when nothing was left to say: both sides then finish.
Result<void> Connection::end_of_stream() {
  if (reader_.mid_frame())
    return fail(Code::unavailable, "the stream ended inside the frame at byte {}",
                reader_.offset());
  if (calls_in_flight() != 0)
    return fail(Code::unavailable, "{} closed the connection with {} calls in flight{}",
                peer_.text(), calls_in_flight(), leaving_ ? ": " + leaving_->message() : "");
  saw_end_ = true;
  leave(Error(Code::unavailable, fmt::format("{} closed the connection", peer_.text())));
  end_by(clock_.now() + kPartingTime);
  return {};
}

Task<Result<void>> Connection::write_loop() {
  while (!drained()) {
    auto ready = co_await outbox_.ready();
    if (!ready) co_return fail(ready.error());
    const std::span<const Bytes> batch = outbox_.take();
    if (batch.empty()) continue;
    auto sent = co_await link_.send(batch);
    outbox_.done();
    if (!sent) co_return fail(sent.error());
    room_came();
  }
  end_by(clock_.now() + kPartingTime);
  auto finished = co_await link_.finish();
  co_return finished;
}

void Connection::room_came() {
  while (has_room() && !room_waiters_.empty()) room_waiters_.pop_front().retry();
  serve_slot_waiters();
}

void Connection::control(FrameType type, uint8_t flags, uint32_t stream, Bytes payload) {
  const uint64_t most = limits_.max_queued + limits_.max_queued_control;
  // One that was admitted while there was room may be longer than what is left.
  const uint64_t most_ever = most + kFrameHeaderSize + kMaxInlineMessage;
  if (outbox_.queued() + kFrameHeaderSize + payload.size() > most)
    return cut(Error(Code::exhausted, "the peer does not read what it makes us say"));
  outbox_.add(type, flags, stream, payload.size(),
              [&](std::byte* to) { std::copy(payload.begin(), payload.end(), to); });
  TUTTI_QUEUE("connection: bytes of small frames that wait", outbox_.queued(), most_ever);
}

void Connection::cut(Error why) {
  if (running_ != nullptr) running_->cancel(std::move(why));
}

void Connection::keep_alive() {
  if (!heard_ && pinged_) {
    TUTTI_PROBE("wire: a silent peer was given up");
    return cut(Error(Code::unavailable, fmt::format("{} gave no sign of life for {}", peer_.text(),
                                                    format_duration(limits_.keepalive_timeout))));
  }
  if (!std::exchange(active_, false)) release_idle();
  Duration next = limits_.keepalive_interval;
  pinged_ = !heard_;
  if (pinged_) {
    control(FrameType::ping, 0, 0, {});
    next = limits_.keepalive_timeout;
  }
  heard_ = false;
  clock_.arm(keepalive_, clock_.now() + next);
}

void Connection::close(Instant by, std::string_view reason) {
  end_by(by);
  if (closing_ || end_) return;
  closing_ = true;
  control(FrameType::goaway, 0, 0, as_bytes(goaway_payload(reason)));
  leave(Error(Code::unavailable, fmt::format("the connection is closing: {}", reason)));
}

Result<void> Connection::peer_leaves(const Frame& frame) {
  proto::GoAway goaway;
  if (!goaway.ParseFromArray(frame.payload.data(), static_cast<int>(frame.payload.size())))
    return fail(Code::corrupt, "a goaway that does not parse");
  peer_is_leaving_ = true;
  leave(Error(Code::unavailable, fmt::format("{} takes no more calls: {}", peer_.text(),
                                             goaway.reason().substr(0, kMaxReason))));
  return {};
}

void Connection::leave(Error why) {
  if (!leaving_) leaving_ = std::move(why);
  while (!slot_waiters_.empty()) slot_waiters_.pop_front().refuse(*leaving_);
  outbox_.wake_writer();
}

void Connection::end_by(Instant by) {
  end_by_ = std::min(end_by_, by);
  if (running_ != nullptr && end_by_ != kNever) clock_.arm(close_by_, end_by_);
}

void Connection::CloseBy::fire() {
  const size_t calls = connection_.calls_in_flight();
  const std::string what = calls != 0 ? fmt::format("{} calls were still in flight", calls)
                                      : connection_.peer_.text() + " had not closed its side";
  connection_.cut(Error(Code::deadline, what + " when the time to close was up"));
}

}  // namespace tutti::wire
