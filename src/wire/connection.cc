#include "wire/connection.h"

#include "wire/wire.pb.h"

namespace tutti::wire {

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
    outcome = co_await scope.join();
    running_ = nullptr;
  }
  link_.drop();
  clock_.disarm(keepalive_);
  clock_.disarm(close_by_);
  const Error why = outcome ? Error(Code::unavailable, "the connection was closed")
                    : outcome.error().code() == Code::cancelled
                        ? Error(Code::unavailable, "the connection was cut off on this side")
                        : outcome.error();
  end_calls(why);
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
      if (!handled) co_return fail(handled.error().context("the peer broke the protocol"));
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

// The end is in order when nothing was left to say: both sides then finish.
Result<void> Connection::end_of_stream() {
  if (reader_.mid_frame())
    return fail(Code::unavailable, "the stream ended inside the frame at byte {}",
                reader_.offset());
  if (calls_in_flight() != 0)
    return fail(Code::unavailable, "{} closed the connection with {} calls in flight", peer_.text(),
                calls_in_flight());
  closing_ = true;
  while (!slot_waiters_.empty())
    slot_waiters_.pop_front().refuse(Error(Code::unavailable, "closed by the other side"));
  outbox_.wake_writer();
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
  auto finished = co_await link_.finish();
  co_return finished;
}

void Connection::room_came() {
  while (has_room() && !room_waiters_.empty()) room_waiters_.pop_front().retry();
  serve_slot_waiters();
}

void Connection::control(FrameType type, uint8_t flags, uint32_t stream, Bytes payload) {
  outbox_.add(type, flags, stream, payload.size(),
              [&](std::byte* to) { std::copy(payload.begin(), payload.end(), to); });
  if (outbox_.queued() > limits_.max_queued + limits_.max_queued_control)
    cut(Error(Code::exhausted, "the peer does not read what it makes us say"));
}

void Connection::cut(Error why) {
  if (running_ != nullptr) running_->cancel(std::move(why));
}

void Connection::keep_alive() {
  if (!heard_ && pinged_)
    return cut(Error(Code::unavailable, fmt::format("{} gave no sign of life for {}", peer_.text(),
                                                    format_duration(limits_.keepalive_timeout))));
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
  if (closing_ || end_) return;
  closing_ = true;
  proto::GoAway goaway;
  goaway.set_reason(std::string(reason));
  control(FrameType::goaway, 0, 0, as_bytes(goaway.SerializeAsString()));
  const Error why(Code::unavailable, fmt::format("the connection is closing: {}", reason));
  while (!slot_waiters_.empty()) slot_waiters_.pop_front().refuse(why);
  clock_.arm(close_by_, by);
}

void Connection::CloseBy::fire() {
  connection_.cut(Error(Code::deadline,
                        fmt::format("{} calls were still in flight when the time to close was up",
                                    connection_.calls_in_flight())));
}

}  // namespace tutti::wire
