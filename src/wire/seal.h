// What protects a connection. A Seal turns what we say into what travels and back, and knows who
// is at the other end. TLS, peer credentials of a Unix socket and the simulated handshake are
// Seals; the RPC above does not know which it has. seals.h makes the one that fits.
//
// A Seal is pure computation over bytes: it never touches the stream but in handshake(). After
// that, one strand may seal while another opens, on the same executor.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "world/stream.h"
#include "world/task.h"

namespace tutti::wire {

// A guest has shown no certificate: only an Expectation that names the role lets one in.
enum class Role : unsigned char { user, agent, head, keeper, worker, guest };

// Who is at the other end, proven by a certificate or told by the kernel.
struct Identity {
  std::string cluster;  // empty on Unix sockets
  Role role = Role::user;
  std::string name;  // host name of an agent, job and rank of a worker, user name

  bool operator==(const Identity&) const = default;
};

class Seal {
 public:
  virtual ~Seal() = default;

  // Proves who we are and learns who they are; refuses with Code::denied and a reason that the
  // other side is told too, where the protocol allows it. Bytes of the stream that came after the
  // handshake are kept and given by the first open(), which may be given nothing. It waits as long
  // as the other side likes: give it a deadline (world/scope.h).
  virtual Task<Result<Identity>> handshake(Stream& stream) = 0;

  // Appends to `out` what must travel for these bytes to arrive.
  virtual Result<void> seal(std::span<const Bytes> plain, std::string& out) = 0;
  // Takes what travelled and appends the plain bytes that are complete. Code::unavailable when the
  // other side closed the seal, Code::corrupt when the bytes were tampered with, Code::denied when
  // the other side refuses us after all: with TLS 1.3 a client learns that only here.
  virtual Result<void> open(Bytes travelled, std::string& out) = 0;
  // Appends the last bytes to send: that we are done, or, after a failed open(), what was wrong.
  virtual void close(std::string& out) { static_cast<void>(out); }
  // False when seal() and open() only copy: the caller may then skip them.
  virtual bool transforms() const = 0;
};

}  // namespace tutti::wire
