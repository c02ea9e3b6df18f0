// The methods one side answers. Filled before the first connection, then shared by all of them.
//
// A handler is a coroutine: a free function, a member function with its object, or a lambda that
// calls one (a lambda that is itself a coroutine must capture nothing).
//
//   Task<Result<PingReply>> Agent::ping(CallContext& call, const PingRequest& request);
//   Task<Result<void>> Agent::logs(CallContext& call, ServerStream<LogQuery, LogLines>& stream);
//
//   methods.add(kPing, agent, &Agent::ping);
//   methods.add(kLogs, agent, &Agent::logs);
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "wire/call_stream.h"
#include "wire/method.h"
#include "world/task.h"

namespace tutti::wire {

class IncomingCall;

class Handler {
 public:
  Handler(std::string_view name, bool streaming) : name_(name), streaming_(streaming) {}
  virtual ~Handler() = default;
  const std::string& name() const { return name_; }
  bool streaming() const { return streaming_; }

  // The coroutine that answers the call, with the request of a unary one.
  virtual Result<Task<void>> start(IncomingCall& call, const Received* request) const = 0;

 private:
  std::string name_;
  bool streaming_;
};

class Methods {
 public:
  template <class Request, class Reply, class Function>
  void add(const Method<Request, Reply>& method, Function function);
  template <class Up, class Down, class Function>
  void add(const StreamMethod<Up, Down>& method, Function function);
  template <class MethodType, class Object, class Result, class... Args>
  void add(const MethodType& method, Object& object, Result (Object::*member)(Args...)) {
    add(method,
        [&object, member](auto& call, auto& argument) { return (object.*member)(call, argument); });
  }

  const Handler* find(uint64_t id) const;
  // What there is, for whoever called something else.
  std::string names() const;

 private:
  void add_handler(uint64_t id, std::unique_ptr<Handler> handler);
  std::map<uint64_t, std::unique_ptr<Handler>> handlers_;
};

namespace detail {

// The ends of a handler's call that need no types.
Task<void> finish_call(IncomingCall& call, const MessageRef* reply, const Error* error);
CallContext& context_of(IncomingCall& call);
StreamExchange& exchange_of(IncomingCall& call);

template <class Request, class Reply, class Function>
Task<void> serve_unary(IncomingCall& call, const Function& function, Request request) {
  auto work = function(context_of(call), request);
  Result<Reply> reply = co_await std::move(work);
  std::optional<MessageRef> message;
  if (reply) message.emplace(*reply);
  auto end = finish_call(call, message ? &*message : nullptr, reply ? nullptr : &reply.error());
  co_await std::move(end);
}

template <class Up, class Down, class Function>
Task<void> serve_stream(IncomingCall& call, const Function& function) {
  ServerStream<Up, Down> stream(exchange_of(call));
  auto work = function(context_of(call), stream);
  Result<void> result = co_await std::move(work);
  const MessageRef nothing;
  auto end = finish_call(call, &nothing, result ? nullptr : &result.error());
  co_await std::move(end);
}

template <class Request, class Reply, class Function>
class UnaryHandler final : public Handler {
 public:
  UnaryHandler(std::string_view name, Function function)
      : Handler(name, false), function_(std::move(function)) {}
  Result<Task<void>> start(IncomingCall& call, const Received* received) const override {
    Request request;
    TRY_DO(MessageSink(request).take(*received));
    return serve_unary<Request, Reply, Function>(call, function_, std::move(request));
  }

 private:
  Function function_;
};

template <class Up, class Down, class Function>
class StreamHandler final : public Handler {
 public:
  StreamHandler(std::string_view name, Function function)
      : Handler(name, true), function_(std::move(function)) {}
  Result<Task<void>> start(IncomingCall& call, const Received*) const override {
    return serve_stream<Up, Down, Function>(call, function_);
  }

 private:
  Function function_;
};

}  // namespace detail

template <class Request, class Reply, class Function>
void Methods::add(const Method<Request, Reply>& method, Function function) {
  add_handler(method.id, std::make_unique<detail::UnaryHandler<Request, Reply, Function>>(
                             method.name, std::move(function)));
}

template <class Up, class Down, class Function>
void Methods::add(const StreamMethod<Up, Down>& method, Function function) {
  add_handler(method.id, std::make_unique<detail::StreamHandler<Up, Down, Function>>(
                             method.name, std::move(function)));
}

}  // namespace tutti::wire
