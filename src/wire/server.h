// Accepts connections and answers their calls.
//
//   Server server(world.clock(), methods, [&] { return seals.make(request); }, options);
//   scope.spawn(server.serve(*listener));
//   …
//   server.stop(clock.now() + 5s);     // serve() returns when everyone has finished
//
// Stopping: no new connections, a goaway on those there are, calls in flight finish, and what is
// left at the deadline is cut off.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/log.h"
#include "wire/connection.h"
#include "world/network.h"

namespace tutti::wire {

// A seal for one connection.
using MakeSeal = std::function<Result<std::unique_ptr<Seal>>()>;

struct ServerOptions {
  ConnectionOptions connection;
  // Including those that have not said hello yet. One descriptor each.
  uint32_t max_connections = 16'384;
  // Of them, those that have not: whoever connects and says nothing must not take everyone's place.
  uint32_t max_greeting = 4'096;
  // Told of each connection once greeted, and before it goes: for calls from our side to theirs.
  std::function<void(Connection&)> joined;
  std::function<void(Connection&)> left;
};

class Server {
 public:
  // The methods and the clock must outlive the server.
  Server(Clock& clock, const Methods& methods, MakeSeal make_seal, ServerOptions options);
  ~Server();

  // Until stop(), or until the listener fails. Once.
  Task<Result<void>> serve(Listener& listener);
  // Again, with an earlier time, to hurry it.
  void stop(Instant by);
  // Those that have said hello, and those that have not yet.
  size_t connections() const { return greeted_.size(); }
  size_t greeting() const { return attended_ - greeted_.size(); }

 private:
  class Attended;
  class CutOff final : public Timer {
   public:
    explicit CutOff(Server& server) : server_(server) {}

   private:
    void fire() override {
      if (server_.attending_ != nullptr) server_.attending_->cancel();
    }
    Server& server_;
  };
  Task<Result<void>> accept_loop(Listener& listener, Scope& scope);
  Task<void> attend(std::unique_ptr<Stream> stream, std::unique_ptr<Attended> attended);
  bool is_full() const;

  Clock& clock_;
  const Methods& methods_;
  MakeSeal make_seal_;
  ServerOptions options_;
  std::vector<Connection*> greeted_;
  size_t attended_ = 0;
  Scope* accepting_ = nullptr;
  Scope* attending_ = nullptr;
  CutOff cut_off_{*this};
  // Whoever knocks decides how often these are written.
  LogLimit tell_full_;
  LogLimit tell_refused_;
  Instant stop_by_ = kNever;
  bool stopping_ = false;
};

}  // namespace tutti::wire
