#include "wire/call.h"

#include "wire/connection.h"

namespace tutti::wire {

UnaryCall::UnaryCall(Connection& connection, std::string_view method, uint64_t method_id,
                     MessageRef request, const CallOptions& options)
    : target_(connection),
      method_(method),
      method_id_(method_id),
      request_(request),
      deadline_(options.effective_deadline()) {}

bool UnaryCall::await_ready() {
  if (cancelled_already()) {
    error_ = cancelled_error();
  } else if (auto usable = target_.check_usable(request_.size()); !usable) {
    error_ = usable.error();
  } else {
    const Instant now = target_.clock().now();
    if (deadline_ == kNever) deadline_ = now + target_.limits().default_timeout;
    if (deadline_ <= now) error_ = too_late_error();
  }
  if (error_) name_call();
  return error_.has_value();
}

void UnaryCall::await_suspend(std::coroutine_handle<> coroutine) {
  park(coroutine);
  target_.clock().arm(*this, deadline_);
  target_.want_slot(*this);
}

void UnaryCall::begin() {
  const Duration left = deadline_ - target_.clock().now();
  attach(target_, target_.take_slot(*this), true);
  send_request(method_id_, static_cast<uint64_t>(std::max<int64_t>(1, to_ns(left))), request_,
               true);
}

void UnaryCall::deliver(const Received& message, bool last) {
  if (!last) return abandon(Error(Code::corrupt, "the reply of a unary call is one message"));
  auto taken = reply_->take(message);
  if (!taken) error_ = taken.error();
  has_reply_ = true;
}

void UnaryCall::ended(Result<void> status) {
  if (!status) return finish(status.error());
  if (!has_reply_) return finish(Error(Code::corrupt, "the call ended without a reply"));
  finish(std::move(error_));
}

void UnaryCall::finish(std::optional<Error> error) {
  target_.clock().disarm(*this);
  error_ = std::move(error);
  // Here, while the connection still is there: it may be gone when the caller goes on.
  if (error_) name_call();
  wake();
}

void UnaryCall::name_call() {
  error_ = error_->context(fmt::format("calling {} of {}", method_, target_.peer().text()));
}

void UnaryCall::give_up(Error why) {
  if (open()) return abandon(std::move(why));  // comes back as ended()
  finish(std::move(why));
}

void UnaryCall::fire() { give_up(too_late_error()); }
void UnaryCall::on_cancel() { give_up(cancelled_error()); }

Result<void> UnaryCall::outcome() {
  if (error_) return fail(std::move(*error_));
  return {};
}

}  // namespace tutti::wire
