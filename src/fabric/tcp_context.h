// What the parts of a TcpTransport have in common: with all epochs, and with those of one.
#pragma once

#include "fabric/tcp_handshake.h"

namespace tutti::tcp {

struct Context {
  explicit Context(TcpOptions options)
      : options(std::move(options)), tell_broken(10s, 20), tell_failed(10s, 10) {}

  World& world() const { return options.world; }
  Clock& clock() const { return options.world.clock(); }
  Protection protection() const {
    return {.checksums = options.checksums && !options.encrypt, .encrypt = options.encrypt};
  }

  TcpOptions options;
  TcpCounters counters;
  LogLimit tell_broken;
  LogLimit tell_failed;
};

class Caller;
class Answerer;

// One epoch, as its links see it.
class EpochState {
 public:
  uint64_t number = 0;
  uint64_t session = 0;
  Scope scope{Scope::Root{}};  // of all strands of the epoch

  virtual Caller& caller(uint32_t rank) = 0;
  virtual Answerer& answerer(uint32_t rank) = 0;
  // Another rank told us to.
  virtual void refuse_here(const Refusal& refusal) = 0;

 protected:
  ~EpochState() = default;
};

}  // namespace tutti::tcp
