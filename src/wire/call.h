// A unary call, made with Connection::call():
//
//   auto reply = co_await connection.call(kPing, request, {.deadline = soon});
//
// It gives Result<Reply>. The call lives in the awaiting coroutine's frame and takes no memory but
// its messages; the request is read when the call gets its slot, so it must live until the reply.
#pragma once

#include <optional>
#include <string_view>

#include "wire/exchange.h"
#include "wire/method.h"
#include "world/clock.h"

namespace tutti::wire {

// Whoever waits for one of the connection's slots.
class SlotWaiter : public Waiter {
 public:
  // There is a slot, and room to send.
  virtual void begin() = 0;
  // There will never be one.
  virtual void refuse(const Error& why) = 0;

 protected:
  ~SlotWaiter() = default;
};

class UnaryCall : public SlotWaiter, private Exchange, private Timer {
 public:
  bool await_ready();
  void await_suspend(std::coroutine_handle<> coroutine);

 protected:
  UnaryCall(Connection& connection, std::string_view method, uint64_t method_id, MessageRef request,
            const CallOptions& options);
  ~UnaryCall() = default;
  Result<void> outcome();

  std::optional<MessageSink> reply_;  // set by the typed call

 private:
  void begin() override;
  void refuse(const Error& why) override { finish(why); }
  void deliver(const Received& message, bool last) override;
  void no_more() override {}
  void ended(Result<void> status) override;
  void fire() override;
  void on_cancel() override;
  void give_up(Error why);
  void finish(std::optional<Error> error);
  void name_call();

  Connection& target_;
  std::string_view method_;
  uint64_t method_id_;
  MessageRef request_;
  Instant deadline_;
  std::optional<Error> error_;
  bool has_reply_ = false;
};

template <Message Reply>
class Call final : public UnaryCall {
 public:
  Call(Connection& connection, std::string_view method, uint64_t method_id, MessageRef request,
       const CallOptions& options)
      : UnaryCall(connection, method, method_id, request, options) {
    reply_.emplace(value_);
  }
  Result<Reply> await_resume() {
    TRY_DO(outcome());
    return std::move(value_);
  }

 private:
  Reply value_;
};

}  // namespace tutti::wire
