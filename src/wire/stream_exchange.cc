#include "wire/stream_exchange.h"

namespace tutti::wire {

void StreamExchange::reset() {
  queue_ = std::vector<Queued>();
  head_ = 0;
  no_more_ = false;
  status_.reset();
}

void StreamExchange::deliver(const Received& message, bool last) {
  no_more_ = last;
  if (receiver_ == nullptr) {
    Lease lease = message.lease != nullptr ? std::move(*message.lease) : Lease();
    queue_.emplace_back(message.to_blob(), std::move(lease), message.window);
    return;
  }
  Receive& receiver = *receiver_;
  receiver.finish(receiver.take(message));
  consumed(message.window, message.lease != nullptr ? message.lease->bytes() : 0);
}

void StreamExchange::no_more() {
  no_more_ = true;
  // Who opened the call waits for its status, which comes now too.
  if (receiver_ != nullptr && !opener_) receiver_->finish(false);
}

void StreamExchange::ended(Result<void> status) {
  status_ = std::move(status);
  if (receiver_ == nullptr) return;
  if (*status_) {
    receiver_->finish(false);
  } else {
    receiver_->finish(fail(status_->error()));
  }
}

StreamExchange::Queued StreamExchange::pop() {
  Queued first = std::move(queue_[head_++]);
  if (head_ == queue_.size()) {
    queue_.clear();
    head_ = 0;
  } else if (head_ >= 64 && 2 * head_ >= queue_.size()) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(head_));
    head_ = 0;
  }
  return first;
}

bool StreamExchange::Receive::await_ready() {
  TUTTI_ASSERT(exchange_.receiver_ == nullptr, "one strand receives from a call");
  if (cancelled_already()) {
    outcome_ = fail(cancelled_error());
  } else if (!exchange_.queue_.empty()) {
    const Queued first = exchange_.pop();
    outcome_ = take({.bytes = first.blob.bytes(), .owned = &first.blob});
    exchange_.consumed(first.window, first.lease.bytes());
  } else if (exchange_.status_ && !*exchange_.status_) {
    outcome_ = fail(exchange_.status_->error());
  } else {
    outcome_ = false;
    return exchange_.status_.has_value() || (exchange_.no_more_ && !exchange_.opener_);
  }
  return true;
}

Result<bool> StreamExchange::Receive::take(const Received& message) {
  TRY_DO(sink_->take(message));
  return true;
}

}  // namespace tutti::wire
