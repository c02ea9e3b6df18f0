#include "world/sim/packet.h"

#include <new>

#include "world/sim/stream.h"

namespace tutti {

Packet* Packet::make(What what, size_t bytes) {
  auto* packet = new (::operator new(sizeof(Packet) + bytes)) Packet(what);
  packet->detail_ = static_cast<uint32_t>(bytes);
  return packet;
}

void Packet::destroy(Packet* packet) {
  packet->~Packet();
  ::operator delete(packet);
}

void Packet::prefetch_stream() const {
  __builtin_prefetch(to);
  __builtin_prefetch(reinterpret_cast<const char*>(to) + 64);
}

void Packet::prefetch_reader() const { to->prefetch(); }

void Packet::fire() { to->arrived(*this); }

}  // namespace tutti
