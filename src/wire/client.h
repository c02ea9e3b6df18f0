// Keeps a connection to one address, made when it is first wanted and again after it broke.
//
//   Client client(world, address, make_seal, nullptr, options);
//   scope.spawn(client.run());
//   auto connection = co_await client.connection(deadline);
//   auto reply = co_await (*connection)->call(kPing, request);
//
// A peer that is not there yet is tried again, waiting twice as long each time, for as long as
// somebody wants it; a peer that refuses us is not.
#pragma once

#include <functional>
#include <memory>

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

  // Gracefully; run() returns after it.
  void close(Instant by);

 private:
  class Wanted;
  bool usable() const { return current_ != nullptr && current_->usable(); }
  Task<Result<void>> serve_wanted(Scope& connections);
  static Task<void> keep(std::shared_ptr<Connection> connection);
  Task<Result<std::shared_ptr<Connection>>> connect();
  Task<Result<void>> pause(Duration& longest);
  void answer_all(const Error* error);

  World& world_;
  Address address_;
  MakeSeal make_seal_;
  const Methods* methods_;
  ClientOptions options_;
  std::shared_ptr<Connection> current_;
  List<Wanted> waiting_;
  Semaphore wanted_{0};
  std::optional<Error> last_error_;
  Scope* serving_ = nullptr;
  bool closing_ = false;
};

}  // namespace tutti::wire
