#include "wire/server.h"

#include <algorithm>

#include "base/log.h"

namespace tutti::wire {

namespace {
// After accept() failed for want of descriptors: some may be closed by then.
constexpr Duration kAcceptPause = 50ms;
constexpr Duration kLogInterval = 10s;
constexpr int kLogBurst = 10;
}  // namespace

Server::Server(Clock& clock, const Methods& methods, MakeSeal make_seal, ServerOptions options)
    : clock_(clock),
      methods_(methods),
      make_seal_(std::move(make_seal)),
      options_(std::move(options)),
      tell_full_(kLogInterval, kLogBurst),
      tell_refused_(kLogInterval, kLogBurst) {}

Server::~Server() { TUTTI_ASSERT(greeted_.empty(), "a server dies after its connections"); }

Task<Result<void>> Server::serve(Listener& listener) {
  Scope connections;
  Scope accepting;
  accepting_ = &accepting;
  attending_ = &connections;
  if (options_.connection.address.empty())
    options_.connection.address = "a client of " + listener.address().text();
  if (!stopping_) accepting.spawn(accept_loop(listener, connections));
  auto accepted = co_await accepting.join();
  accepting_ = nullptr;
  if (!stopping_) connections.cancel();
  auto joined = co_await connections.join();
  attending_ = nullptr;
  clock_.disarm(cut_off_);
  if (stopping_) co_return Result<void>();
  co_return accepted;
}

void Server::stop(Instant by) {
  stop_by_ = std::min(stop_by_, by);
  for (Connection* connection : greeted_) connection->close(stop_by_, "the server stops");
  if (stop_by_ != kNever) clock_.arm(cut_off_, stop_by_);
  if (std::exchange(stopping_, true)) return;
  if (accepting_ != nullptr) accepting_->cancel();
}

// Counted and listed for as long as it is attended to, also when that is broken off where it
// stands.
class Server::Attended {
 public:
  explicit Attended(Server& server) : server_(server) { ++server_.attended_; }
  ~Attended() {
    if (greeted_ != nullptr) std::erase(server_.greeted_, greeted_);
    --server_.attended_;
  }
  Attended(const Attended&) = delete;
  Attended& operator=(const Attended&) = delete;
  void greeted(Connection& connection) {
    greeted_ = &connection;
    server_.greeted_.push_back(greeted_);
  }

 private:
  Server& server_;
  Connection* greeted_ = nullptr;
};

bool Server::is_full() const {
  return attended_ >= options_.max_connections || greeting() >= options_.max_greeting;
}

Task<Result<void>> Server::accept_loop(Listener& listener, Scope& scope) {
  for (;;) {
    auto stream = co_await listener.accept();
    const bool exhausted = !stream && stream.error().code() == Code::exhausted;
    if (!stream && !exhausted)
      co_return fail(stream.error().context("accepting at " + listener.address().text()));
    const bool taken = stream && !is_full();
    if (!taken && tell_full_.allow(clock_.now()))
      TUTTI_LOG(warn, "turned a connection away",
                {{"why", exhausted ? stream.error().text() : "too many connections"},
                 {"greeted", connections()},
                 {"greeting", greeting()},
                 {"more_like_it", tell_full_.take_suppressed()}});
    if (exhausted) {
      auto slept = co_await clock_.sleep(kAcceptPause);
      if (!slept) co_return slept;
      continue;
    }
    if (taken) {
      auto attended = std::make_unique<Attended>(*this);
      scope.spawn(attend(std::move(*stream), std::move(attended)));
    }
    // Beyond the limits a connection is closed at once: its peer is told by that.
    stream->reset();
    // accept() does not wait while more have connected, and they must not hold up everybody else.
    co_await yield();
  }
}

Task<void> Server::attend(std::unique_ptr<Stream> stream, std::unique_ptr<Attended> attended) {
  auto seal = make_seal_();
  if (!seal) TUTTI_LOG(warn, "no seal for a connection", {{"why", seal.error().text()}});
  if (!seal) co_return;
  auto connection = co_await Connection::greet(clock_, std::move(stream), std::move(*seal),
                                               Side::accepting, &methods_, options_.connection);
  if (!connection) {
    if (tell_refused_.allow(clock_.now()))
      TUTTI_LOG(
          info, "refused a peer",
          {{"why", connection.error().text()}, {"more_like_it", tell_refused_.take_suppressed()}});
    co_return;
  }
  Connection& greeted = **connection;
  attended->greeted(greeted);
  if (options_.joined) options_.joined(greeted);
  if (stopping_) greeted.close(stop_by_, "the server stops");
  auto ended = co_await greeted.run();
  if (!ended) TUTTI_LOG(info, "a connection ended", {{"why", ended.error().text()}});
  if (options_.left) options_.left(greeted);
}

}  // namespace tutti::wire
