// A streaming call: messages that wait to be read, and the end of them.
#pragma once

#include <vector>

#include "wire/exchange.h"

namespace tutti::wire {

class StreamExchange : public Exchange {
 public:
  // Sends one message, or with `last` and no message says that none follows.
  Send send(MessageRef message, bool last) {
    return {*this, FrameType::message, last ? FrameFlags::last : uint8_t{0}, message};
  }

  // Waits for the next message. Derived classes say where it goes and what co_await gives.
  class Receive;

 protected:
  StreamExchange() = default;
  ~StreamExchange() = default;

  void deliver(const Received& message, bool last) override;
  void no_more() override;
  void ended(Result<void> status) override;
  // Forgets everything, unread messages and their memory too.
  void reset();

 private:
  struct Queued {
    Blob blob;
    Lease lease;
    uint64_t window;
  };
  Queued pop();

  std::vector<Queued> queue_;  // from head_; bounded by window and budget
  size_t head_ = 0;
  Receive* receiver_ = nullptr;
  bool no_more_ = false;
  std::optional<Result<void>> status_;
};

class StreamExchange::Receive : public Waiter {
 public:
  explicit Receive(StreamExchange& exchange) : exchange_(exchange) {}
  bool await_ready();
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    exchange_.receiver_ = this;
  }

 protected:
  ~Receive() {
    if (exchange_.receiver_ == this) exchange_.receiver_ = nullptr;
  }
  // Whether there was a message, or the error the call ended with.
  Result<bool> outcome() { return std::move(outcome_); }
  std::optional<MessageSink> sink_;

 private:
  friend class StreamExchange;
  void finish(Result<bool> outcome) {
    exchange_.receiver_ = nullptr;
    outcome_ = std::move(outcome);
    wake();
  }
  Result<bool> take(const Received& message);
  void on_cancel() override { finish(fail(cancelled_error())); }

  StreamExchange& exchange_;
  Result<bool> outcome_ = false;
};

}  // namespace tutti::wire
