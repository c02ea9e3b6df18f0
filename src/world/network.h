// Connections between hosts and between processes of one host.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "world/stream.h"
#include "world/task.h"

namespace tutti {

// "127.0.0.1:7000", "[::1]:7000", "node17:7000" (TCP), or "unix:/run/x.sock". A port of 0 lets
// listen() choose; Listener::address() tells.
struct Address {
  enum class Kind : unsigned char { tcp, unix_socket };
  Kind kind = Kind::tcp;
  std::string host;  // or the path
  uint16_t port = 0;

  static Result<Address> parse(std::string_view text);
  static Address tcp(std::string host, uint16_t port);
  static Address unix_socket(std::string path);
  std::string text() const;
  bool operator==(const Address&) const = default;
};

class Scope;

// Gets the connections of a listener, one by one. Called from the top of an event loop.
class ConnectionTaker {
 public:
  virtual void on_connection(std::unique_ptr<Stream> stream) = 0;
  // No more of them come.
  virtual void on_accept_failed(const Error& why) { static_cast<void>(why); }

 protected:
  ~ConnectionTaker() = default;
};

class Listener {
 public:
  virtual ~Listener() = default;  // stops listening; a Unix socket's path is removed
  virtual const Address& address() const = 0;
  virtual Task<Result<std::unique_ptr<Stream>>> accept() = 0;
  // The other way: the taker gets all that come, until the scope is cancelled or the listener dies.
  // What waits for them is the scope's, or nothing at all: there may be a million listeners.
  virtual void serve(ConnectionTaker& taker, Scope& scope);
};

class Network {
 public:
  virtual ~Network() = default;
  // Only bytes of processes that may connect to a Unix path reach its listener: mode 0600.
  virtual Task<Result<std::unique_ptr<Listener>>> listen(Address address) = 0;
  virtual Task<Result<std::unique_ptr<Stream>>> connect(Address address) = 0;
  // Two connected Unix streams: one for us, one as a handle to give to a child.
  struct Pair {
    std::unique_ptr<Stream> ours;
    Handle theirs;
  };
  virtual Result<Pair> pair() = 0;
  // A stream over a handle that was received or inherited (a pipe, socket or terminal).
  virtual Result<std::unique_ptr<Stream>> adopt(Handle handle) = 0;
};

}  // namespace tutti
