#include "wire/client.h"

#include <algorithm>

#include "base/log.h"

namespace tutti::wire {

namespace {
// Beside the one that takes calls, those whose peer said goaway and which have calls to finish. A
// peer that says it again and again must not make us keep them all.
constexpr size_t kMostConnections = 8;
constexpr std::string_view kClosing = "the client closes";
}  // namespace

// Somebody who waits for a connection.
class Client::Wanted final : public Waiter, private Timer {
 public:
  Wanted(Client& client, Instant deadline) : client_(client), deadline_(deadline) {}

  bool await_ready() {
    if (cancelled_already()) error_ = cancelled_error();
    if (client_.closing_) error_ = Error(Code::unavailable, "the client is closed");
    if (client_.usable()) given_ = client_.current_;
    return error_.has_value() || given_ != nullptr;
  }
  void await_suspend(std::coroutine_handle<> coroutine) {
    park(coroutine);
    client_.world_.clock().arm(*this, deadline_);
    if (client_.waiting_.empty()) client_.wanted_.release();
    client_.waiting_.push_back(*this);
  }
  Result<std::shared_ptr<Connection>> await_resume() {
    if (error_) return fail(error_->context("connecting to " + client_.address_.text()));
    return given_;
  }
  void answer(const Error* error) {
    if (error != nullptr)
      error_ = *error;
    else
      given_ = client_.current_;
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
  std::shared_ptr<Connection> given_;
};

Client::Client(World& world, Address address, MakeSeal make_seal, const Methods* methods,
               ClientOptions options)
    : world_(world),
      address_(std::move(address)),
      make_seal_(std::move(make_seal)),
      methods_(methods),
      options_(std::move(options)),
      longest_pause_(options_.first_pause) {
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
  for (;;) {
    auto wanted = co_await wanted_.acquire();
    if (!wanted) co_return wanted;
    const auto made_at = std::exchange(made_at_, std::nullopt);
    const bool settled = made_at && world_.clock().now() - *made_at >= options_.longest_pause;
    if (settled) longest_pause_ = options_.first_pause;
    if (made_at && !settled) {
      auto slept = co_await pause();
      if (!slept) co_return slept;
    }
    while (!waiting_.empty()) {
      auto made = co_await connect();
      if (made) {
        begin(connections, *made);
        break;
      }
      const Error& why = made.error();
      if (Strand::current()->cancelled()) co_return fail(cancelled_error());
      last_error_ = why;
      const bool may_come = why.code() == Code::unavailable || why.code() == Code::deadline;
      if (!may_come) {
        answer_all(&why);
        break;
      }
      auto slept = co_await pause();
      if (!slept) co_return slept;
    }
  }
}

void Client::begin(Scope& connections, std::shared_ptr<Connection> made) {
  made_at_ = world_.clock().now();
  current_ = std::move(made);
  running_.push_back(current_);
  if (running_.size() > kMostConnections)
    running_.front()->close(world_.clock().now(), "too many newer connections have replaced it");
  connections.spawn(keep(current_));
  // While it was made: nobody wants it any more, and run() waits for it.
  if (closing_) return current_->close(close_by_, kClosing);
  answer_all(nullptr);
}

Task<void> Client::keep(std::shared_ptr<Connection> connection) {
  auto ended = co_await connection->run();
  if (!ended) TUTTI_LOG(info, "a connection ended", {{"why", ended.error().text()}});
  std::erase(running_, connection);
  if (current_ == connection) current_.reset();
}

Task<Result<void>> Client::pause() {
  const double part = 0.5 + 0.5 * world_.random().unit();
  const Duration wait(static_cast<int64_t>(part * static_cast<double>(longest_pause_.count())));
  longest_pause_ = std::min(2 * longest_pause_, options_.longest_pause);
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
  if (TUTTI_FAULT(world_, "wire client: a connection is lost right after its hello"))
    co_return fail(Code::unavailable, "the connection broke");
  co_return std::shared_ptr<Connection>(std::move(*greeted));
}

void Client::close(Instant by) {
  close_by_ = std::min(close_by_, by);
  for (const auto& connection : running_) connection->close(close_by_, kClosing);
  if (std::exchange(closing_, true)) return;
  if (serving_ != nullptr) serving_->cancel();
}

}  // namespace tutti::wire
