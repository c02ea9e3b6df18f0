#include "wire/incoming_call.h"

#include "wire/connection.h"

namespace tutti::wire {

Result<void> IncomingCall::begin(uint32_t stream, const Handler& handler, Instant deadline,
                                 const Frame& request, Bytes payload) {
  attach(context_.connection, stream, false);
  handler_ = &handler;
  context_.deadline = deadline;
  scope_.emplace(Scope::Root{});
  started_ = late_ = unwanted_ = false;
  if (deadline != kNever) context_.connection.clock().arm(*this, deadline);
  if (handler.streaming()) start(nullptr);
  return receive_messages(request, payload);
}

void IncomingCall::deliver(const Received& message, bool last) {
  if (handler_->streaming()) return StreamExchange::deliver(message, last);
  if (!last) return refuse_request();
  if (message.lease != nullptr) request_ = std::move(*message.lease);
  if (!context_.connection.too_many_replies()) return start(&message);
  start_wait_.request = message.to_blob();
  context_.connection.replies().ask(start_wait_);
}

void IncomingCall::StartWait::granted(Lease) {
  const Blob whole = std::exchange(request, Blob());
  const Received message{.bytes = whole.bytes(), .owned = &whole};
  call.start(&message);
}

void IncomingCall::no_more() {
  if (handler_->streaming()) return StreamExchange::no_more();
  refuse_request();
}

void IncomingCall::refuse_request() {
  finish(fail(Code::invalid, "{} needs a request of one message", handler_->name()));
}

Budget& IncomingCall::arrivals() {
  Connection& connection = context_.connection;
  return handler_->streaming() ? connection.receiving() : connection.requests();
}

Exchange::Send IncomingCall::reply(MessageRef message) {
  if (message.size() > kMaxInlineMessage)
    reply_ = context_.connection.replies().take(message.size());
  return {*this, FrameType::end, FrameFlags::last, message};
}

void IncomingCall::start(const Received* first) {
  started_ = true;
  auto task = handler_->start(*this, first);
  if (!task) return finish(fail(task.error().context("reading the request")));
  scope_->spawn(std::move(*task));
}

void IncomingCall::finish(Result<void> status) {
  if (open()) {
    // Who gave up needs no reasons, and these failures may not wait for room.
    if (!status)
      send_failure(late_ ? too_late_error() : unwanted_ ? cancelled_error() : status.error());
    close({});
  }
  leave();
}

void IncomingCall::leave() {
  if (start_wait_.linked()) context_.connection.replies().withdraw(start_wait_);
  start_wait_.request = Blob();
  request_ = Lease();
  reply_ = Lease();
  reset();
  context_.connection.call_finished(*this);
}

void IncomingCall::orphan() {
  Exchange::orphan();
  start_wait_.unlink();
}

void IncomingCall::cancelled_by_peer() {
  unwanted_ = true;
  if (!started_) return finish(fail(cancelled_error()));
  // A caller that has seen the announcement of the end may use the slot again at once.
  if (end_announced()) return close(fail(cancelled_error()));
  scope_->cancel();
}

void IncomingCall::fire() {
  late_ = true;
  if (started_) return scope_->cancel();
  finish(fail(too_late_error()));
}

// Without an error finish() said so; with one the connection is gone, and the handler must end.
void IncomingCall::ended(Result<void> status) {
  if (armed()) clock()->disarm(*this);
  context_.connection.leave_slot(*this);
  const bool gone = !status;
  StreamExchange::ended(std::move(status));
  if (gone && started_) scope_->cancel();
  if (gone && !started_) leave();
}

}  // namespace tutti::wire
