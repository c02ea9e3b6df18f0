// Retransmission of a stream whose packets do not get through, or that nobody acknowledges.
#pragma once

#include "world/sim/stream.h"

namespace tutti {

class SimStream::Stall final : public SimEvent {
 public:
  explicit Stall(SimStream& stream) : SimEvent(EventKind::retry), stream_(stream) {}

  bool incoming = false;  // packets to this end wait in its queue
  bool outgoing = false;  // what this end sent is not acknowledged
  int64_t incoming_until_ns = 0;
  int64_t outgoing_until_ns = 0;
  uint32_t sender_boots = 0;
  int64_t pause_ns = kRetryNs;

 private:
  void fire() override { stream_.check_stall(); }
  SimStream& stream_;
};

}  // namespace tutti
