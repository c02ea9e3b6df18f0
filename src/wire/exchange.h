// One call, as either end of it sees it: messages out, messages in, credit both ways.
//
// An exchange has a slot in its connection's table from its opening to its end. Who opened the call
// learns its outcome through ended(), exactly once: by the other side's end or failure, by giving
// up (abandon), or with the connection. A call that was abandoned keeps its slot until the other
// side has confirmed, so that a slot never means two calls at once.
//
// Credit: a side may send as many bytes of messages as the other has granted for this call, at
// first its stream_window. What is consumed is granted again. A large message is granted when it is
// announced, out of one of the connection's budgets, and takes memory only then.
#pragma once

#include <optional>

#include "wire/limits.h"
#include "wire/message.h"
#include "wire/outbox.h"

namespace tutti::wire {

class Connection;

class Exchange : private BulkSend {
 public:
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Whether frames can still be sent and received.
  bool open() const { return connection_ != nullptr; }

  // co_await gives Result<void>: when the message was taken, that is when it was copied or, if it
  // is large, when its last piece is being written. One at a time. A large message that is
  // cancelled halfway breaks the call.
  class Send;

 protected:
  Exchange() = default;
  ~Exchange();

  // A whole message came; `last` when no other follows. The bytes are gone after the call.
  virtual void deliver(const Received& message, bool last) = 0;
  // No message follows, said without one.
  virtual void no_more() = 0;
  // The call is over; nothing is called after this.
  virtual void ended(Result<void> status) = 0;
  // The other side gave up a call it had opened.
  virtual void cancelled_by_peer() {}

  void attach(Connection& connection, uint32_t stream, bool opener);
  // Sends the request frame of a call we open. There must be room.
  void send_request(uint64_t method, uint64_t timeout_ns, const MessageRef& message, bool last);
  // Ends the call on our side and tells the other.
  void abandon(Error why);
  Result<void> receive_messages(const Frame& frame, Bytes payload);
  // Whether our last message was announced or sent.
  bool end_announced() const { return end_announced_; }
  // Ends the call without a word.
  void close(Result<void> status);
  void send_failure(const Error& error);
  // The consumer has taken a message: the other side may send as much again.
  void consumed(uint64_t window, uint64_t leased);
  // The connection is gone without having run to its end.
  void orphan();
  // What large messages that come on this call are granted from.
  virtual Budget& arrivals();

  Connection* connection_ = nullptr;
  uint32_t stream_ = 0;
  bool opener_ = false;

 private:
  friend class Connection;
  enum class Progress : unsigned char { taken, started, no_room, no_credit };

  // For the connection. An error means that the other side broke the protocol.
  Result<void> receive(const Frame& frame);
  Result<MutableBytes> place(const FrameHeader& header);

  Result<void> receive_message(Bytes message, bool last, bool end);
  Result<void> announce(Bytes total, bool last, bool end);
  Result<void> receive_data(const Frame& frame);
  Result<void> receive_credit(Bytes payload);
  Result<void> receive_failure(Bytes payload);
  Result<void> check_window(uint64_t bytes) const;
  Result<void> take_window(uint64_t bytes);
  void grant(uint64_t bytes);
  void ask_budget();
  void budget_granted(Lease lease);
  Progress begin_send(FrameType type, uint8_t flags, Bytes head, const MessageRef& message);
  Progress start_bulk(FrameType type, uint8_t flags, Bytes head, const MessageRef& message);
  void bulk_done() override;
  uint8_t side_flag() const { return opener_ ? FrameFlags::opener : uint8_t{0}; }

  // A large message that is being received. Its memory is taken when its bytes come: all of it
  // with a lease, without one no more than the window lets come.
  struct Arriving {
    uint64_t total;
    bool last;
    bool end;
    Lease lease = {};
    Blob blob = {};
    size_t filled = 0;

    MutableBytes room(size_t size, uint64_t window);
  };
  struct BudgetWait final : Budget::Wait {
    explicit BudgetWait(Exchange& exchange) : exchange(exchange) {}
    void granted(Lease lease) override { exchange.budget_granted(std::move(lease)); }
    Exchange& exchange;
  };

  Send* sending_ = nullptr;
  std::optional<Arriving> arriving_;
  BudgetWait budget_wait_{*this};
  uint64_t leased_ = 0;    // by messages that came and were not consumed
  uint64_t window_ = 0;    // bytes the other side may still send
  uint64_t consumed_ = 0;  // bytes consumed and not yet granted again
  bool peer_is_done_ = false;
  bool end_announced_ = false;
  bool broken_ = false;
};

class Exchange::Send final : public Waiter {
 public:
  Send(Exchange& exchange, FrameType type, uint8_t flags, MessageRef message)
      : exchange_(exchange), message_(message), type_(type), flags_(flags) {}
  ~Send();
  bool await_ready();
  void await_suspend(std::coroutine_handle<> coroutine);
  Result<void> await_resume();

 private:
  friend class Exchange;
  friend class Connection;
  bool try_again();  // whether it is over
  void retry();      // room or credit came
  void finish(std::optional<Error> error);
  void on_cancel() override;

  Exchange& exchange_;
  MessageRef message_;
  std::optional<Error> error_;
  FrameType type_;
  uint8_t flags_;
  Progress progress_ = Progress::no_room;
};

}  // namespace tutti::wire
