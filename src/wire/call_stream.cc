#include "wire/call_stream.h"

#include "wire/connection.h"

namespace tutti::wire {

OutgoingStream::OutgoingStream(Connection& connection, std::string_view method, uint64_t method_id,
                               Instant deadline)
    : target_(connection), method_(method), method_id_(method_id), deadline_(deadline) {}

OutgoingStream::~OutgoingStream() {
  if (open()) abandon(cancelled_error());
}

void OutgoingStream::begin() {
  uint64_t timeout_ns = 0;
  if (deadline_ != kNever) {
    const Duration left = deadline_ - target_.clock().now();
    timeout_ns = static_cast<uint64_t>(std::max<int64_t>(1, to_ns(left)));
    target_.clock().arm(*this, deadline_);
  }
  attach(target_, target_.take_slot(*this), true);
  send_request(method_id_, timeout_ns, {}, false);
}

void OutgoingStream::ended(Result<void> status) {
  if (armed()) clock()->disarm(*this);
  if (!status)
    status = fail(
        status.error().context(fmt::format("streaming {} of {}", method_, target_.peer().text())));
  StreamExchange::ended(std::move(status));
}

void OutgoingStream::fire() { abandon(too_late_error()); }

OpenStream::OpenStream(Connection& connection, std::string_view method, uint64_t method_id,
                       const CallOptions& options)
    : target_(connection), deadline_(options.effective_deadline()) {
  stream_ = std::make_unique<OutgoingStream>(connection, method, method_id, deadline_);
}

bool OpenStream::await_ready() {
  if (cancelled_already()) {
    refused(cancelled_error());
  } else if (auto usable = target_.check_usable(0); !usable) {
    refused(usable.error());
  } else if (deadline_ <= target_.clock().now()) {
    refused(too_late_error());
  } else if (target_.slot_is_free()) {
    stream_->begin();
  } else {
    return false;
  }
  return true;
}

void OpenStream::await_suspend(std::coroutine_handle<> coroutine) {
  park(coroutine);
  if (deadline_ != kNever) target_.clock().arm(*this, deadline_);
  target_.want_slot(*this);
}

void OpenStream::begin() {
  target_.clock().disarm(*this);
  stream_->begin();
  wake();
}

void OpenStream::refuse(const Error& why) {
  target_.clock().disarm(*this);
  refused(why);
  wake();
}

void OpenStream::refused(const Error& why) {
  error_ = why.context(fmt::format("opening {} of {}", stream_->method_, target_.peer().text()));
}

void OpenStream::fire() { refuse(too_late_error()); }
void OpenStream::on_cancel() { refuse(cancelled_error()); }

Result<std::unique_ptr<OutgoingStream>> OpenStream::outcome() {
  if (error_) return fail(std::move(*error_));
  return std::move(stream_);
}

}  // namespace tutti::wire
