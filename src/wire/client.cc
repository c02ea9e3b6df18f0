#include "wire/client.h"

#include <algorithm>

#include "base/log.h"

namespace tutti::wire {

// Somebody who waits for a connection.
class Client::Wanted final : public Waiter, private Timer {
 public:
  Wanted(Client& client, Instant deadline) : client_(client), deadline_(deadline) {}

  bool await_ready() {
    if (cancelled_already()) error_ = cancelled_error();
    if (client_.closing_) error_ = Error(Code::unavailable, "the client is closed");
    return error_.has_value() || client_.usable();
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    client_.world_.clock().arm(*this, deadline_);
    if (client_.waiting_.empty()) client_.wanted_.release();
    client_.waiting_.push_back(*this);
  }
  Result<std::shared_ptr<Connection>> await_resume() {
    if (error_) return fail(error_->context("connecting to " + client_.address_.text()));
    return client_.current_;
  }
  void answer(const Error* error) {
    if (error != nullptr) error_ = *error;
    client_.world_.clock().disarm(*this);
    wake();
  }

 private:
  void fire() override {
    const auto& last = client_.last_error_;
    const Error late = last ? Error(Code::deadline, last->text()).context("still trying")
                            : Error(Code::deadline, "the time allowed ran out");
    answer(&late);
  }
  void on_cancel() override {
    const Error error = cancelled_error();
    answer(&error);
  }

  Client& client_;
  Instant deadline_;
  std::optional<Error> error_;
};

Client::Client(World& world, Address address, MakeSeal make_seal, const Methods* methods,
               ClientOptions options)
    : world_(world),
      address_(std::move(address)),
      make_seal_(std::move(make_seal)),
      methods_(methods),
      options_(std::move(options)) {
  if (options_.connection.address.empty()) options_.connection.address = address_.text();
}

Client::~Client() { TUTTI_ASSERT(waiting_.empty(), "a client outlives who waits for it"); }

Task<Result<std::shared_ptr<Connection>>> Client::connection(Instant deadline) {
  auto connection = co_await Wanted(*this, deadline);
  co_return connection;
}

void Client::answer_all(const Error* error) {
  while (!waiting_.empty()) waiting_.pop_front().answer(error);
}

Task<Result<void>> Client::run() {
  Scope connections;
  Scope serving;
  serving_ = &serving;
  if (!closing_) serving.spawn(serve_wanted(connections));
  auto served = co_await serving.join();
  serving_ = nullptr;
  if (!closing_) connections.cancel();
  auto joined = co_await connections.join();
  const bool closed = std::exchange(closing_, true);
  current_.reset();
  const Error gone(Code::unavailable, "the client is closed");
  answer_all(&gone);
  if (closed) co_return Result<void>();
  co_return served;
}

Task<Result<void>> Client::serve_wanted(Scope& connections) {
  Duration longest = options_.first_pause;
  for (;;) {
    auto wanted = co_await wanted_.acquire();
    if (!wanted) co_return wanted;
    while (!waiting_.empty()) {
      auto made = co_await connect();
      if (made) {
        longest = options_.first_pause;
        current_ = *made;
        connections.spawn(keep(current_));
        answer_all(nullptr);
        break;
      }
      const Error& why = made.error();
      if (why.code() == Code::cancelled) co_return fail(why);
      last_error_ = why;
      const bool may_come = why.code() == Code::unavailable || why.code() == Code::deadline;
      if (!may_come) {
        answer_all(&why);
        break;
      }
      auto slept = co_await pause(longest);
      if (!slept) co_return slept;
    }
  }
}

Task<void> Client::keep(std::shared_ptr<Connection> connection) {
  auto ended = co_await connection->run();
  if (!ended) TUTTI_LOG(info, "a connection ended", {{"why", ended.error().text()}});
}

Task<Result<void>> Client::pause(Duration& longest) {
  const double part = 0.5 + 0.5 * world_.random().unit();
  const Duration wait(static_cast<int64_t>(part * static_cast<double>(longest.count())));
  longest = std::min(2 * longest, options_.longest_pause);
  auto slept = co_await world_.clock().sleep(wait);
  co_return slept;
}

Task<Result<std::shared_ptr<Connection>>> Client::connect() {
  const Instant by = world_.clock().now() + options_.connection.limits.hello_timeout;
  auto seal = make_seal_();
  if (!seal) co_return fail(seal.error());
  auto connecting = world_.network().connect(address_);
  auto stream = co_await with_deadline(world_.clock(), by, std::move(connecting));
  if (!stream) co_return fail(stream.error());
  ConnectionOptions options = options_.connection;
  auto greeted = co_await Connection::greet(world_.clock(), std::move(*stream), std::move(*seal),
                                            Side::connecting, methods_, std::move(options));
  if (!greeted) co_return fail(greeted.error());
  co_return std::shared_ptr<Connection>(std::move(*greeted));
}

void Client::close(Instant by) {
  if (closing_) return;
  closing_ = true;
  if (current_ != nullptr) current_->close(by, "the client closes");
  if (serving_ != nullptr) serving_->cancel();
}

}  // namespace tutti::wire
