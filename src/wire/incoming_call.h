// A call that the other side opened and one of our handlers answers.
//
// The handler runs as a strand of the call's own scope: cancelling the call cancels the handler and
// whatever it is waiting for. A large request holds its part of the connection's budget until its
// handler has returned, a large reply until it was sent; a unary call does not start while too many
// replies wait. Records are pooled by their connection; one is used again only after its strand has
// returned.
#pragma once

#include <optional>

#include "wire/methods.h"
#include "wire/stream_exchange.h"
#include "world/clock.h"
#include "world/scope.h"

namespace tutti::wire {

class IncomingCall final : public StreamExchange, private Timer {
 public:
  explicit IncomingCall(Connection& connection) : context_{connection, kNever} {}

  // A handler is left only by a crash, which destroys it where it stands.
  ~IncomingCall() {
    if (scope_) scope_->kill();
  }

  CallContext& context() { return context_; }
  const Handler& handler() const { return *handler_; }

  // Sends the reply of a unary call, or the end of a streaming one (no message).
  Send reply(MessageRef message);
  // Sends what encode_failure() made of the handler's error.
  Send refuse(const Blob& failure) { return {*this, FrameType::failure, 0, failure}; }
  // The handler is done and has answered, or could not: then the error is sent now.
  void finish(Result<void> status);

 private:
  friend class Connection;
  // Takes the request frame's rest, behind the head. An error means a broken protocol.
  Result<void> begin(uint32_t stream, const Handler& handler, Instant deadline,
                     const Frame& request, Bytes payload);
  void deliver(const Received& message, bool last) override;
  void no_more() override;
  void cancelled_by_peer() override;
  void ended(Result<void> status) override;
  void fire() override;
  Budget& arrivals() override;
  void start(const Received* first);
  void refuse_request();
  void leave();
  void orphan();

  // Stands in the queue of calls that wait for replies to be sent.
  struct StartWait final : Budget::Wait {
    explicit StartWait(IncomingCall& call) : call(call) {}
    void granted(Lease lease) override;
    IncomingCall& call;
    Blob request;
  };

  CallContext context_;
  const Handler* handler_ = nullptr;
  std::optional<Scope> scope_;
  StartWait start_wait_{*this};
  Lease request_;
  Lease reply_;
  bool started_ = false;
  bool late_ = false;
  bool unwanted_ = false;
};

}  // namespace tutti::wire
