// What travels on a simulated stream: one allocation, from the write to the read.
#pragma once

#include <memory>
#include <vector>

#include "base/bytes.h"
#include "world/sim/event.h"
#include "world/sim/handles.h"

namespace tutti {

class SimStream;

class Packet final : public SimEvent {
 public:
  enum class What : unsigned char {
    data,
    end,     // the other side writes no more
    reset,   // the other side is gone
    window,  // there is room again for a writer that waits
  };
  static Packet* make(What what, size_t bytes);
  static void destroy(Packet* packet);

  MutableBytes bytes() { return {reinterpret_cast<std::byte*>(this + 1), detail_}; }
  size_t size() const { return detail_; }
  // What its arrival will touch: the stream it goes to; then who reads there and the other end.
  void prefetch_stream() const;
  void prefetch_reader() const;
  void set_charge(double ns) { charge_ns_ = static_cast<uint32_t>(ns); }

  SimStream* to = nullptr;
  Packet* next = nullptr;
  int64_t leaves_at_ns = 0;
  std::unique_ptr<std::vector<OpenThing>> things;
  uint32_t read = 0;  // bytes that were read already
  What what;

 private:
  explicit Packet(What what) : SimEvent(EventKind::packet), what(what) {}
  ~Packet() = default;
  void fire() override;
};

}  // namespace tutti
