#include "world/sim/stall.h"

#include <algorithm>

#include "world/sim/simulator.h"

namespace tutti {

bool SimStream::cut(bool towards_peer) const {
  const LinkTable& links = host_->simulator().links();
  if (links.clear()) return false;
  return towards_peer ? links.cut(host_->index(), remote_) : links.cut(remote_, host_->index());
}

SimStream::Stall& SimStream::stall() {
  if (stall_ == nullptr) {
    stall_ = new Stall(*this);
    Simulator& sim = host_->simulator();
    // When the other side is up but has forgotten us, the answer comes after one round trip.
    const bool refused = peer_ == nullptr && sim.host(remote_).up() && !cut(true) && !cut(false);
    const int64_t wait = refused ? 2 * sim.links().latency_ns(host_->index(), remote_) : kRetryNs;
    sim.schedule(*stall_, sim.director(), sim.now_ns() + wait);
  }
  return *stall_;
}

void SimStream::stall_incoming() {
  Simulator& sim = host_->simulator();
  Stall& stall = this->stall();
  stall.incoming = true;
  stall.incoming_until_ns = sim.now_ns() + kGiveUpNs;
  stall.sender_boots = sim.host(remote_).boots();
}

void SimStream::stall_outgoing() {
  Stall& stall = this->stall();
  if (stall.outgoing) return;
  stall.outgoing = true;
  stall.outgoing_until_ns = host_->simulator().now_ns() + kGiveUpNs;
}

void SimStream::check_stall() {
  if (stall_->incoming) stall_->incoming = check_incoming();
  if (stall_->outgoing) stall_->outgoing = check_outgoing();
  if (!stall_->incoming && !stall_->outgoing) {
    delete std::exchange(stall_, nullptr);
    return;
  }
  Simulator& sim = host_->simulator();
  stall_->pause_ns = std::min(2 * stall_->pause_ns, kLongestRetryNs);
  sim.schedule(*stall_, sim.director(), sim.now_ns() + stall_->pause_ns);
}

// Whether the packets to this end must wait on.
bool SimStream::check_incoming() {
  Simulator& sim = host_->simulator();
  const SimHost& sender = sim.host(remote_);
  if (!sender.up() || sender.boots() != stall_->sender_boots) {
    drop_in_flight(-1);
    return false;
  }
  if (!cut(false)) {
    stall_->incoming = false;
    resend_in_flight();
    return false;
  }
  if (sim.now_ns() < stall_->incoming_until_ns) return true;
  drop_in_flight(-1);
  if (peer_ != nullptr) {
    SimStream* peer = peer_;
    disconnect();
    peer->fail_now(Failure::timed_out);
  }
  return false;
}

// Whether this end must wait on for a sign of the other.
bool SimStream::check_outgoing() {
  Simulator& sim = host_->simulator();
  const bool passable = !cut(true) && !cut(false);
  if (peer_ != nullptr && passable) return false;
  if (peer_ == nullptr && passable && sim.host(remote_).up()) {
    fail_now(Failure::reset);
    return false;
  }
  if (sim.now_ns() < stall_->outgoing_until_ns) return true;
  if (peer_ != nullptr) {
    peer_->drop_in_flight(-1);
    disconnect();
  }
  fail_now(Failure::timed_out);
  return false;
}

void SimStream::resend_in_flight() {
  Simulator& sim = host_->simulator();
  const int64_t latency = sim.links().latency_ns(remote_, host_->index());
  for (Packet* packet = first_in_flight(); packet != nullptr; packet = packet->next) {
    last_arrival_ns_ = std::max({last_arrival_ns_, sim.now_ns() + latency, packet->leaves_at_ns});
    sim.schedule(*packet, host_->core(), last_arrival_ns_);
  }
}

}  // namespace tutti
