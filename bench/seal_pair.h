// Two sides of a sealed connection that have shaken hands in memory.
#pragma once

#include <memory>

#include "base/assert.h"
#include "wire/authority.h"
#include "wire/faulty_stream.h"
#include "wire/tls.h"
#include "world/manual_clock.h"
#include "world/scope.h"

namespace tutti::wire {

inline Task<void> shake(Seal& seal, Stream& stream, bool& done) {
  auto identity = co_await seal.handshake(stream);
  done = identity.has_value();
}

struct SealPair {
  std::unique_ptr<Seal> client;
  std::unique_ptr<Seal> server;
};

// Of two nodes with one certificate.
class SealBench {
 public:
  SealPair connect() {
    SealPair pair{make_tls_seal(context_, clock_, {.side = Side::connecting}),
                  make_tls_seal(context_, clock_, {.side = Side::accepting})};
    auto [first, second] = FaultyStream::make_pair();
    bool client_done = false;
    bool server_done = false;
    Scope scope{Scope::Root{}};
    scope.spawn(shake(*pair.client, *first, client_done));
    scope.spawn(shake(*pair.server, *second, server_done));
    executor_.run_ready();
    TUTTI_ASSERT(client_done && server_done, "a handshake in memory succeeds");
    return pair;
  }

 private:
  Executor executor_;
  ManualClock clock_;
  Authority authority_ = Authority::create("bench", 0).value();
  std::shared_ptr<const TlsContext> context_ =
      TlsContext::make(authority_.issue({Role::agent, "node"}, 0).value()).value();
};

}  // namespace tutti::wire
