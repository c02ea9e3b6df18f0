#include "wire/server.h"

#include <algorithm>

#include "base/log.h"

namespace tutti::wire {

namespace {
// After accept() failed for want of descriptors: some may be closed by then.
constexpr Duration kAcceptPause = 50ms;
}  // namespace

Server::Server(Clock& clock, const Methods& methods, MakeSeal make_seal, ServerOptions options)
    : clock_(clock),
      methods_(methods),
      make_seal_(std::move(make_seal)),
      options_(std::move(options)) {}

Server::~Server() { TUTTI_ASSERT(greeted_.empty(), "a server dies after its connections"); }

Task<Result<void>> Server::serve(Listener& listener) {
  Scope connections;
  Scope accepting;
  accepting_ = &accepting;
  if (options_.connection.address.empty())
    options_.connection.address = "a client of " + listener.address().text();
  if (!stopping_) accepting.spawn(accept_loop(listener, connections));
  auto accepted = co_await accepting.join();
  accepting_ = nullptr;
  if (!stopping_) connections.cancel();
  auto joined = co_await connections.join();
  if (stopping_) co_return Result<void>();
  co_return accepted;
}

void Server::stop(Instant by) {
  if (stopping_) return;
  stopping_ = true;
  stop_by_ = by;
  if (accepting_ != nullptr) accepting_->cancel();
  for (Connection* connection : greeted_) connection->close(by, "the server stops");
}

Task<Result<void>> Server::accept_loop(Listener& listener, Scope& scope) {
  for (;;) {
    auto stream = co_await listener.accept();
    if (!stream && stream.error().code() == Code::exhausted) {
      TUTTI_LOG(warn, "cannot accept", {{"why", stream.error().text()}});
      auto slept = co_await clock_.sleep(kAcceptPause);
      if (!slept) co_return slept;
      continue;
    }
    if (!stream)
      co_return fail(stream.error().context("accepting at " + listener.address().text()));
    // Beyond the limit a connection is closed at once: its peer is told by that.
    if (attended_ < options_.max_connections) scope.spawn(attend(std::move(*stream)));
  }
}

// Counted and listed for as long as it is attended to, also when that is broken off where it stands.
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

Task<void> Server::attend(std::unique_ptr<Stream> stream) {
  Attended attended(*this);
  auto seal = make_seal_();
  if (!seal) TUTTI_LOG(warn, "no seal for a connection", {{"why", seal.error().text()}});
  if (seal) {
    auto connection = co_await Connection::greet(clock_, std::move(stream), std::move(*seal),
                                                 Side::accepting, &methods_, options_.connection);
    if (!connection) TUTTI_LOG(info, "refused a peer", {{"why", connection.error().text()}});
    if (connection) {
      Connection& greeted = **connection;
      attended.greeted(greeted);
      if (options_.joined) options_.joined(greeted);
      if (stopping_) greeted.close(stop_by_, "the server stops");
      auto ended = co_await greeted.run();
      if (!ended) TUTTI_LOG(info, "a connection ended", {{"why", ended.error().text()}});
      if (options_.left) options_.left(greeted);
    }
  }
}

}  // namespace tutti::wire
