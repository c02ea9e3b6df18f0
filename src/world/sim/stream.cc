#include "world/sim/stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "world/scope.h"
#include "world/sim/simulator.h"
#include "world/sim/stall.h"

namespace tutti {

namespace {
constexpr size_t kGivenAtOnce = 4096;  // to a taker
}

SimStream::Pair SimStream::connect(SimHost& a, SimHost& b) {
  Pair pair;
  pair.a.reset(new SimStream(a, b.index()));
  pair.b.reset(new SimStream(b, a.index()));
  pair.a->peer_ = pair.b.get();
  pair.b->peer_ = pair.a.get();
  return pair;
}

SimStream::Pair SimStream::pipe(SimHost& host) {
  Pair pair = connect(host, host);
  pair.a->ended_ = true;
  pair.b->shut_ = true;
  return pair;
}

SimStream::~SimStream() {
  if (host_->up()) {
    leave_orderly();
  } else {
    leave_silently();
  }
  disconnect();
  while (traffic_ != nullptr && traffic_->head != nullptr) pop_head();
  delete traffic_;
  delete stall_;
}

void SimStream::disconnect() {
  if (peer_ == nullptr) return;
  peer_->peer_ = nullptr;
  peer_ = nullptr;
}

// As Linux does: bytes that nobody will read are answered by a reset.
void SimStream::leave_orderly() {
  if (peer_ == nullptr) return;
  if (queued_ > 0) {
    send(Packet::make(Packet::What::reset, 0));
  } else if (!shut_) {
    send(Packet::make(Packet::What::end, 0));
  }
}

// The host crashed: what had left it still arrives, nothing else does.
void SimStream::leave_silently() {
  if (peer_ == nullptr) return;
  peer_->drop_in_flight(host_->simulator().now_ns());
  if (first_in_flight() != nullptr || peer_->has_writers()) {
    SimStream* peer = peer_;
    disconnect();
    peer->stall_outgoing();
  }
}

void SimStream::prefetch() {
  const auto ask = [](const void* what, int lines) {
    for (int i = 0; i < lines; ++i) __builtin_prefetch(static_cast<const char*>(what) + i * 64);
  };
  if (peer_ != nullptr) ask(peer_, 2);
  if (has_readers()) ask(traffic_->readers.first(), 4);
}

void SimStream::set_peer_credentials(Credentials credentials) {
  peer_pid_ = credentials.pid;
  peer_uid_ = credentials.uid;
}

Result<Credentials> SimStream::peer_credentials() const {
  if (peer_pid_ < 0)
    return fail(Code::unsupported, "only Unix streams know who is at the other end");
  return Credentials{peer_pid_, peer_uid_, peer_uid_};
}

Error SimStream::failure_error() const {
  const int number = failure_ == Failure::timed_out ? ETIMEDOUT : ECONNRESET;
  return Error::from_errno(number, "stream to " + sim_host_name(remote_));
}

void SimStream::fail_now(Failure failure) {
  failure_ = failure;
  while (has_writers()) traffic_->writers.pop_front().complete(fail(failure_error()));
  while (has_readers()) traffic_->readers.pop_front().complete(fail(failure_error()));
  if (taker_ != nullptr) give_to_taker();
}

// ---- Writing ----

Result<void> SimStream::shutdown_write() {
  if (shut_) return {};
  shut_ = true;
  if (peer_ != nullptr) send(Packet::make(Packet::What::end, 0));
  return {};
}

bool SimStream::try_write(Write& write) {
  if (failure_ != Failure::none) {
    write.set(fail(failure_error()));
    return true;
  }
  const bool nobody_here = peer_ == nullptr && remote_ == host_->index();
  if (shut_ || nobody_here) {
    write.set(fail_errno(EPIPE, "write to {}", sim_host_name(remote_)));
    return true;
  }
  return !has_writers() && send_some(write);
}

void SimStream::park_write(Write& write) { traffic().writers.push_back(write); }

bool SimStream::send_some(Write& write) {
  while (!write.finished()) {
    const uint32_t taken = peer_ == nullptr ? unheard_ : peer_->queued_;
    if (taken >= kWindow) return false;
    send_data(write, std::min(kWindow - taken, kSegment));
  }
  return true;
}

void SimStream::send_data(Write& write, size_t room) {
  size_t bytes = 0;
  size_t skipped = write.offset();
  for (const Bytes& part : write.parts()) {
    bytes += part.size() - std::exchange(skipped, 0);
    if (bytes >= room) break;
  }
  bytes = std::min(bytes, room);
  if (peer_ == nullptr) {
    unheard_ += static_cast<uint32_t>(bytes);
    write.advance(bytes);
    stall_outgoing();
    return;
  }
  Packet* packet = Packet::make(Packet::What::data, bytes);
  for (const Handle& handle : write.handles) {
    if (packet->things == nullptr) packet->things = std::make_unique<std::vector<OpenThing>>();
    if (auto thing = host_->handles().find(handle)) packet->things->push_back(std::move(*thing));
  }
  std::byte* to = packet->bytes().data();
  for (size_t left = bytes; left > 0;) {
    const Bytes part = write.parts().front().subspan(write.offset());
    const size_t now = std::min(left, part.size());
    std::memcpy(to, part.data(), now);
    to += now;
    left -= now;
    write.advance(now);
  }
  send(packet);
}

void SimStream::send(Packet* packet) {
  Simulator& sim = host_->simulator();
  const CostTable& costs = sim.costs();
  const auto bytes = static_cast<double>(packet->size());
  if (packet->what == Packet::What::data) {
    host_->charge(costs.send_ns + costs.send_byte_ns * bytes);
    packet->set_charge(costs.receive_ns + costs.receive_byte_ns * bytes);
  }
  const uint32_t from = host_->index();
  int64_t leaves = std::max(host_->core().ready_at_ns(), sim.now_ns());
  int64_t on_the_way = sim.links().latency_ns(from, remote_);
  if (from != remote_) {
    leaves = host_->leave_ns(packet->size());
    const uint64_t draw = host_->draw_network();
    on_the_way +=
        static_cast<int64_t>(costs.jitter_ns * (static_cast<double>(draw >> 11) * 0x1p-53));
    if (!sim.links().clear()) {
      const LinkFault fault = sim.links().fault(from, remote_);
      on_the_way += to_ns(fault.extra_latency);
      const double luck = static_cast<double>(mix_bits(draw) >> 11) * 0x1p-53;
      if (luck < fault.loss) on_the_way += kRetryNs;
      if (cut(false)) stall_outgoing();  // it may arrive, but we shall not know
    }
  }
  packet->leaves_at_ns = leaves;
  peer_->enqueue(packet, leaves + on_the_way);
}

// ---- Reading ----

void SimStream::enqueue(Packet* packet, int64_t arrives_ns) {
  packet->to = this;
  Traffic& traffic = this->traffic();
  (traffic.tail == nullptr ? traffic.head : traffic.tail->next) = packet;
  traffic.tail = packet;
  queued_ += static_cast<uint32_t>(packet->size());
  if (stall_ != nullptr && stall_->incoming) return;  // behind one that waits
  if (cut(false)) return stall_incoming();
  last_arrival_ns_ = std::max(last_arrival_ns_, arrives_ns);
  host_->simulator().schedule(*packet, host_->core(), last_arrival_ns_);
}

void SimStream::arrived(Packet& packet) {
  if (stall_ != nullptr && stall_->incoming) return;
  if (cut(false)) return stall_incoming();
  TUTTI_ASSERT(first_in_flight() == &packet, "packets of a stream arrive in order");
  if (packet.what == Packet::What::window) {
    Packet*& before = traffic_->last_arrived;
    (before == nullptr ? traffic_->head : before->next) = packet.next;
    if (traffic_->tail == &packet) traffic_->tail = before;
    Packet::destroy(&packet);
    room_coming_ = false;
    while (has_writers() && send_some(traffic_->writers.front()))
      traffic_->writers.pop_front().complete({});
    return rest();
  }
  traffic_->last_arrived = &packet;
  if (packet.what == Packet::What::reset) {
    failure_ = Failure::reset;
    while (has_writers()) traffic_->writers.pop_front().complete(fail(failure_error()));
  }
  if (taker_ != nullptr) give_to_taker();
  while (has_readers() && finish_read(traffic_->readers.front()))
    traffic_->readers.pop_front().wake();
  rest();
}

void SimStream::rest() {
  if (traffic_ != nullptr && traffic_->over()) delete std::exchange(traffic_, nullptr);
}

// A coroutine waits only where something has come already, or more comes than the taker takes.
void SimStream::serve(ByteTaker& taker, Scope& scope, Clock* clock) {
  const bool quiet = !has_arrived() && failure_ == Failure::none && !ended_;
  if (!quiet || TUTTI_FAULT(*host_, "sim stream: a coroutine reads"))
    return Stream::serve(taker, scope, clock);
  taker_ = &taker;
  taker_scope_ = &scope;
}

void SimStream::give_to_taker() {
  std::array<std::byte, kGivenAtOnce> room;
  while (true) {
    std::vector<Handle> handles;
    Read read(*this, room, &handles);
    if (!finish_read(read)) return;
    const Result<size_t> count = read.await_resume();
    if (!count || *count == 0) {
      ByteTaker& taker = *std::exchange(taker_, nullptr);
      return taker.on_end(count ? Result<void>() : fail(count.error()));
    }
    taker_->on_bytes(Bytes(room).first(*count), std::move(handles));
    if (taker_->pause() <= Duration::zero()) continue;
    ByteTaker& taker = *std::exchange(taker_, nullptr);
    return Stream::serve(taker, *taker_scope_, &host_->clock());
  }
}

bool SimStream::try_read(Read& read) {
  const bool finished = finish_read(read);
  rest();
  return finished;
}

void SimStream::park_read(Read& read) { traffic().readers.push_back(read); }

bool SimStream::finish_read(Read& read) {
  const size_t got = copy_out(read);
  if (got > 0) {
    queued_ -= static_cast<uint32_t>(got);
    give_room();
    read.set(got);
    return true;
  }
  if (has_arrived()) {
    if (traffic_->head->what == Packet::What::end) ended_ = true;
    pop_head();
  }
  if (failure_ != Failure::none) {
    read.set(fail(failure_error()));
  } else if (ended_) {
    read.set(0);
  } else {
    return false;
  }
  return true;
}

size_t SimStream::copy_out(Read& read) {
  // As a kernel may: whoever wants all of something has to ask again.
  const bool less = read.into.size() > 1 && has_arrived() &&
                    TUTTI_FAULT(*host_, "sim stream: a read gives a part of what came");
  const size_t most = less ? read.into.size() / 2 : read.into.size();
  size_t got = 0;
  while (has_arrived() && got < most) {
    Packet& packet = *traffic_->head;
    if (packet.what != Packet::What::data) break;
    if (packet.things != nullptr && read.handles != nullptr) {
      for (OpenThing& thing : *packet.things)
        read.handles->push_back(host_->handles().add(std::move(thing)));
    }
    packet.things.reset();
    const size_t now = std::min(most - got, packet.size() - packet.read);
    std::memcpy(read.into.data() + got, packet.bytes().data() + packet.read, now);
    got += now;
    packet.read += static_cast<uint32_t>(now);
    if (packet.read == packet.size()) pop_head();
  }
  return got;
}

// A writer that waits is told once there is room for more than a trickle.
void SimStream::give_room() {
  if (peer_ == nullptr || !peer_->has_writers() || peer_->room_coming_) return;
  if (queued_ > kWindow / 2) return;
  peer_->room_coming_ = true;
  send(Packet::make(Packet::What::window, 0));
}

void SimStream::pop_head() {
  Packet* packet = traffic_->head;
  traffic_->head = packet->next;
  if (packet == traffic_->last_arrived) traffic_->last_arrived = nullptr;
  if (packet == traffic_->tail) traffic_->tail = nullptr;
  Packet::destroy(packet);
}

void SimStream::drop_in_flight(int64_t leaving_after_ns) {
  if (traffic_ == nullptr) return;
  Packet* before = traffic_->last_arrived;
  Packet** link = before == nullptr ? &traffic_->head : &before->next;
  traffic_->tail = before;
  while (*link != nullptr) {
    Packet* packet = *link;
    if (packet->leaves_at_ns <= leaving_after_ns) {
      traffic_->tail = packet;
      link = &packet->next;
      continue;
    }
    *link = packet->next;
    queued_ -= static_cast<uint32_t>(packet->size());
    Packet::destroy(packet);
  }
}

}  // namespace tutti
