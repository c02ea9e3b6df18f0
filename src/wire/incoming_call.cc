#include "wire/incoming_call.h"

#include "wire/connection.h"

namespace tutti::wire {

Result<void> IncomingCall::begin(uint32_t stream, const Handler& handler, Instant deadline,
                                 const Frame& request, Bytes payload) {
  reset();
  attach(context_.connection, stream, false);
  handler_ = &handler;
  context_.deadline = deadline;
  scope_.emplace(Scope::Root{});
  started_ = late_ = false;
  if (deadline != kNever) context_.connection.clock().arm(*this, deadline);
  if (handler.streaming()) start(nullptr);
  return receive_messages(request, payload);
}

void IncomingCall::deliver(const Received& message, bool last) {
  if (handler_->streaming()) return StreamExchange::deliver(message, last);
  if (!started_) start(&message);
  consumed(message.bytes.size(), message.budgeted);
}

void IncomingCall::no_more() {
  if (handler_->streaming()) return StreamExchange::no_more();
  if (!started_) finish(fail(Code::invalid, "{} needs a request of one message", handler_->name()));
}

void IncomingCall::start(const Received* first) {
  started_ = true;
  auto task = handler_->start(*this, first);
  if (!task) return finish(fail(task.error().context("reading the request")));
  scope_->spawn(std::move(*task));
}

void IncomingCall::finish(Result<void> status) {
  if (armed()) clock()->disarm(*this);
  Connection& connection = context_.connection;
  if (open()) {
    if (!status) {
      const bool cut = late_ && status.error().code() == Code::cancelled;
      send_failure(cut ? too_late_error() : status.error());
    }
    close({});
  }
  connection.call_finished(*this);
}

void IncomingCall::cancelled_by_peer() {
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
  if (gone && !started_) context_.connection.call_finished(*this);
}

}  // namespace tutti::wire
