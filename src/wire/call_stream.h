// The two ends of a streaming call, typed.
//
//   auto logs = co_await connection.open(kLogs);            // Result<ClientStream<…>>
//   auto sent = co_await logs->send(query);                 // Result<void>; waits for credit
//   auto done = co_await logs->finish();                    // we send no more
//   auto line = co_await logs->recv();                      // Result<optional<…>>; empty: the end
//
// Each direction is used by one strand at a time. A ClientStream that dies before the end cancels
// the call.
#pragma once

#include <memory>
#include <string>

#include "wire/call.h"
#include "wire/stream_exchange.h"

namespace tutti::wire {

template <Message T>
class Recv final : public StreamExchange::Receive {
 public:
  explicit Recv(StreamExchange& exchange) : Receive(exchange) { sink_.emplace(value_); }
  Result<std::optional<T>> await_resume() {
    TRY(const bool some, outcome());
    if (!some) return std::nullopt;
    return std::move(value_);
  }

 private:
  T value_;
};

// A streaming call that we opened.
class OutgoingStream final : public StreamExchange, private Timer {
 public:
  OutgoingStream(Connection& connection, std::string_view method, uint64_t method_id,
                 Instant deadline);
  ~OutgoingStream();

 private:
  friend class OpenStream;
  void begin();
  void ended(Result<void> status) override;
  void fire() override;

  Connection& target_;
  std::string_view method_;
  uint64_t method_id_;
  Instant deadline_;
};

// Waits for a slot.
class OpenStream : public SlotWaiter, private Timer {
 public:
  OpenStream(Connection& connection, std::string_view method, uint64_t method_id,
             const CallOptions& options);
  bool await_ready();
  void await_suspend(std::coroutine_handle<> coroutine);

 protected:
  ~OpenStream() = default;
  Result<std::unique_ptr<OutgoingStream>> outcome();

 private:
  void begin() override;
  void refuse(const Error& why) override;
  void fire() override;
  void on_cancel() override;
  void refused(const Error& why);

  Connection& target_;
  std::unique_ptr<OutgoingStream> stream_;
  Instant deadline_;
  std::optional<Error> error_;
};

template <Message Up, Message Down>
class ClientStream {
 public:
  explicit ClientStream(std::unique_ptr<OutgoingStream> stream) : stream_(std::move(stream)) {}

  Exchange::Send send(const Up& message) { return stream_->send(message, false); }
  Exchange::Send finish() { return stream_->send({}, true); }
  Recv<Down> recv() { return Recv<Down>(*stream_); }

 private:
  std::unique_ptr<OutgoingStream> stream_;
};

template <Message Up, Message Down>
class Open final : public OpenStream {
 public:
  using OpenStream::OpenStream;
  Result<ClientStream<Up, Down>> await_resume() {
    TRY(auto stream, outcome());
    return ClientStream<Up, Down>(std::move(stream));
  }
};

// A streaming call that we answer; given to the handler, whose return ends it.
template <Message Up, Message Down>
class ServerStream {
 public:
  explicit ServerStream(StreamExchange& exchange) : exchange_(exchange) {}

  Exchange::Send send(const Down& message) { return exchange_.send(message, false); }
  Recv<Up> recv() { return Recv<Up>(exchange_); }

 private:
  StreamExchange& exchange_;
};

}  // namespace tutti::wire
