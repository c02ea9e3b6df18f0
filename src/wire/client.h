// Keeps a connection to one address, made when it is first wanted and again after it broke.
//
//   Client client(world, address, make_seal, nullptr, options);
//   scope.spawn(client.run());
//   auto connection = co_await client.connection(deadline);
//   auto reply = co_await (*connection)->call(kPing, request);
//
// A peer that is not there yet is tried again, waiting twice as long each time, for as long as
// somebody wants it; a peer that refuses us is not. A connection that ends young counts as a try.
// One whose peer said goaway is replaced by a new one and runs on until its calls have ended.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "wire/connection.h"
#include "wire/server.h"
#include "world/world.h"

namespace tutti::wire {

struct ClientOptions {
  ConnectionOptions connection;
  // Between tries; each wait is a random part of what it could be, so that many clients of a peer
  // that comes back do not come at once.
  Duration first_pause = 20ms;
  Duration longest_pause = 5s;
};

class Client {
 public:
  // World and methods (nullptr: none) outlive the client.
  Client(World& world, Address address, MakeSeal make_seal, const Methods* methods,
         ClientOptions options);
  ~Client();

  // Makes and runs connections until close() or cancellation. Once.
  Task<Result<void>> run();

  // A connection that takes calls. Code::deadline with the last reason when there is none by then.
  Task<Result<std::shared_ptr<Connection>>> connection(Instant deadline);

  // Gracefully; run() returns after it. Again, with an earlier time, to hurry it.
  void close(Instant by);
  // Those that run, the ones being replaced included.
  size_t connections() const { return running_.size(); }

 private:
  class Wanted;
  bool usable() const { return current_ != nullptr && current_->usable(); }
  Task<Result<void>> serve_wanted(Scope& connections);
  void begin(Scope& connections, std::shared_ptr<Connection> made);
  Task<void> keep(std::shared_ptr<Connection> connection);
  Task<Result<std::shared_ptr<Connection>>> connect();
  Task<Result<void>> pause();
  void answer_all(const Error* error);

  World& world_;
  Address address_;
  MakeSeal make_seal_;
  const Methods* methods_;
  ClientOptions options_;
  std::shared_ptr<Connection> current_;
  std::vector<std::shared_ptr<Connection>> running_;  // oldest first
  List<Wanted> waiting_;
  Semaphore wanted_{0};
  std::optional<Error> last_error_;
  Duration longest_pause_;          // the next one at most
  std::optional<Instant> made_at_;  // the last connection, until another is wanted
  Scope* serving_ = nullptr;
  Instant close_by_ = kNever;
  bool closing_ = false;
};

}  // namespace tutti::wire
