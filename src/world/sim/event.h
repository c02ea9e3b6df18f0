// Something that happens to a host: a packet arrives, a disk is done, a process ends. Events are
// timers in the one wheel of the simulator; those of kind 0 are plain timers of a host's clock.
#pragma once

#include <cstdint>
#include <string_view>

#include "world/clock.h"

namespace tutti {

enum class EventKind : uint16_t {
  timer,
  wake,
  packet,
  retry,
  connect,
  disk,
  process,
  fault,
  transfer
};
std::string_view event_kind_name(EventKind kind);

class SimEvent : public Timer {
 public:
  uint32_t detail() const { return detail_; }

 protected:
  explicit SimEvent(EventKind kind) : Timer(static_cast<uint16_t>(kind)) {}
  ~SimEvent() = default;

  // What the trace shows beside the kind, such as a size.
  uint32_t detail_ = 0;
  // Processor time its handling takes on the host it happens to.
  uint32_t charge_ns_ = 0;

 private:
  friend class Simulator;
  // Called in place of fire() when the host is down then, or went down while the event waited.
  virtual void drop() {}
};

}  // namespace tutti
