// A connection between two peers that call each other's methods.
//
// Both sides are equal once connected: each answers the methods it was given and may call the
// other's. Everything runs on the executor of the strand that runs the connection; there are no
// threads and no locks. A connection reads in one strand, writes in another, and runs a strand per
// call it answers; whatever is queued when the writer gets its turn goes out in one write.
//
//   auto connection = co_await Connection::greet(clock, stream, seal, side, &methods, options);
//   scope.spawn((*connection)->run());
//   auto reply = co_await (*connection)->call(kPing, request, {.deadline = soon});
//
// When a connection ends, for whatever reason, every call in flight ends with Code::unavailable and
// the peer's name, and its handlers are cancelled and waited for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wire/budget.h"
#include "wire/call.h"
#include "wire/call_stream.h"
#include "wire/hello.h"
#include "wire/incoming_call.h"
#include "wire/methods.h"
#include "world/semaphore.h"

namespace tutti::wire {

class Connection final : private DataSink {
 public:
  // Handshake and hello; see hello.h. `methods` (nullptr: none) outlives the connection.
  static Task<Result<std::unique_ptr<Connection>>> greet(Clock& clock,
                                                         std::unique_ptr<Stream> stream,
                                                         std::unique_ptr<Seal> seal, Side side,
                                                         const Methods* methods,
                                                         ConnectionOptions options);
  ~Connection();

  // Runs the connection until it ends: well, after a close() here or there, or with the reason.
  Task<Result<void>> run();

  // co_await gives Result<Reply>. The request lives until then.
  template <class Request, class Reply>
  Call<Reply> call(const Method<Request, Reply>& method, const Request& request,
                   const CallOptions& options = {}) {
    return {*this, method.name, method.id, request, options};
  }
  // co_await gives Result<ClientStream<Up, Down>>.
  template <class Up, class Down>
  Open<Up, Down> open(const StreamMethod<Up, Down>& method, const CallOptions& options = {}) {
    return {*this, method.name, method.id, options};
  }

  // Graceful end: no new calls either way, calls in flight finish, then both sides half-close.
  // What is not done by then is cut off. Again, with an earlier time, to hurry it.
  void close(Instant by, std::string_view reason = "closing");
  // co_await gives Result<void> once run() is over.
  Event::Wait wait_ended() { return ended_event_.wait(); }

  // Whether new calls can be made: false after close(), a goaway and the end.
  bool usable() const { return !end_ && !leaving_; }
  const Peer& peer() const { return peer_; }
  const Limits& limits() const { return limits_; }
  Clock& clock() { return clock_; }
  size_t calls_in_flight() const { return outgoing_busy_ + incoming_busy_; }
  // Bytes of memory that messages in queues and buffers hold: within limits(), always.
  uint64_t budget_in_use() const { return receiving_ ? receiving_->in_use() : 0; }
  uint64_t requests_in_use() const { return requests_ ? requests_->in_use() : 0; }
  uint64_t replies_in_use() const { return replies_ ? replies_->in_use() : 0; }
  size_t queued_bytes() const { return outbox_.queued(); }
  // Bytes of memory held for what comes and goes, whether something does or not.
  size_t buffer_bytes() const { return link_.capacity() + reader_.capacity(); }

 private:
  friend class Exchange;
  friend class IncomingCall;
  friend class OpenStream;
  friend class OutgoingStream;
  friend class UnaryCall;

  struct Outgoing {
    Exchange* exchange = nullptr;  // nullptr when free or abandoned
    uint16_t generation = 1;
    bool busy = false;
  };
  class Keepalive final : public Timer {
   public:
    explicit Keepalive(Connection& connection) : connection_(connection) {}

   private:
    void fire() override { connection_.keep_alive(); }
    Connection& connection_;
  };
  class CloseBy final : public Timer {
   public:
    explicit CloseBy(Connection& connection) : connection_(connection) {}

   private:
    void fire() override;
    Connection& connection_;
  };

  Connection(Clock& clock, std::unique_ptr<Stream> stream, std::unique_ptr<Seal> seal,
             const Methods* methods, const Limits& limits);

  Task<Result<void>> read_loop();
  Task<Result<void>> write_loop();
  Result<void> handle(const Frame& frame);
  Result<void> handle_request(const Frame& frame);
  Result<void> handle_for_call(const Frame& frame);
  Result<void> handle_abandoned(const Frame& frame);
  Result<MutableBytes> place(const FrameHeader& header) override;
  Result<void> end_of_stream();
  void keep_alive();
  // Lets go of the memory of a busy moment.
  void release_idle();
  void cut(Error why);
  void end_calls(const Error& why);

  // How it ends well.
  Result<void> peer_leaves(const Frame& goaway);
  void leave(Error why);
  void end_by(Instant by);
  // Requests may cross our goaway until the other side has seen it: it half-closes first.
  bool drained() const {
    return (peer_is_leaving_ || saw_end_) && calls_in_flight() == 0 && outbox_.empty();
  }
  // How it ends otherwise.
  Error broken_by(const Frame& frame, const Error& error) const;
  Task<void> say_why(Error why);
  Task<Result<void>> last_words(std::string reason);

  // For exchanges.
  Outbox& outbox() { return outbox_; }
  bool has_room() const { return outbox_.queued() < limits_.max_queued; }
  void wait_room(Exchange::Send& send) { room_waiters_.push_back(send); }
  void control(FrameType type, uint8_t flags, uint32_t stream, Bytes payload);
  void room_came();
  Exchange* find(uint32_t stream, bool opened_by_peer) const;
  // Made when first needed: most connections see no large message.
  static Budget& made(std::shared_ptr<Budget>& budget, uint64_t limit);
  Budget& receiving() { return made(receiving_, limits_.receive_budget); }
  Budget& requests() { return made(requests_, limits_.handling_budget); }
  Budget& replies() { return made(replies_, limits_.handling_budget); }
  bool too_many_replies() const { return replies_ && replies_->over_limit(); }
  void forget(Exchange& exchange);

  // For calls we make.
  Result<void> check_usable(size_t request_bytes) const;
  bool slot_is_free() const;
  void want_slot(SlotWaiter& waiter);
  uint32_t take_slot(Exchange& exchange);
  void free_slot(uint32_t stream);
  void abandon_slot(uint32_t stream);
  void serve_slot_waiters();

  // For calls we answer.
  void leave_slot(IncomingCall& call);
  void call_finished(IncomingCall& call);

  Clock& clock_;
  Limits limits_;
  const Methods* methods_;
  Peer peer_;
  FrameReader reader_;
  Link link_;
  Outbox outbox_;

  std::vector<Outgoing> outgoing_;
  std::vector<uint16_t> outgoing_free_;
  size_t outgoing_busy_ = 0;
  uint32_t outgoing_most_ = 0;           // slots that were ever used
  uint16_t first_generation_ = 1;        // of a slot that is not in the table
  std::vector<IncomingCall*> incoming_;  // by slot
  std::vector<std::unique_ptr<IncomingCall>> incoming_records_;
  std::vector<IncomingCall*> incoming_pool_;
  size_t incoming_busy_ = 0;
  List<SlotWaiter> slot_waiters_;
  List<Exchange::Send> room_waiters_;
  std::shared_ptr<Budget> receiving_;
  std::shared_ptr<Budget> requests_;
  std::shared_ptr<Budget> replies_;
  Blob receiving_into_;  // where the reader is putting a data frame

  Scope* running_ = nullptr;
  std::optional<Error> end_;
  std::optional<Event> handlers_done_;
  Event ended_event_;
  Keepalive keepalive_{*this};
  CloseBy close_by_{*this};
  bool heard_ = true;
  bool pinged_ = false;
  bool active_ = true;            // there was more than signs of life since the last one
  std::optional<Error> leaving_;  // why no calls are made any more
  Instant end_by_ = kNever;
  bool closing_ = false;          // we said goaway
  bool peer_is_leaving_ = false;  // they did
  bool saw_end_ = false;
};

}  // namespace tutti::wire
