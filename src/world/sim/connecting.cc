#include "world/sim/connecting.h"

#include <algorithm>
#include <cerrno>

#include "world/sim/simulator.h"

namespace tutti {

Connecting::Connecting(SimHost& from, SimHost& to, Address address, Credentials who)
    : SimEvent(EventKind::connect),
      from_(from),
      to_(to),
      address_(std::move(address)),
      who_(who),
      give_up_at_ns_(from.simulator().now_ns() + SimNetwork::kConnectGiveUpNs),
      pause_ns_(SimNetwork::kConnectRetryNs) {}

bool Connecting::await_ready() {
  if (cancelled_already()) {
    result_ = fail(cancelled_error());
    return true;
  }
  if (address_.kind == Address::Kind::tcp || from_.ports().find(address_, false)) return false;
  result_ = fail_errno(ENOENT, "connect to {}", address_.text());
  return true;
}

void Connecting::await_suspend(std::coroutine_handle<> coroutine) {
  park(coroutine);
  ask();
}

void Connecting::go(Step step, SimHost& where, int64_t at_ns, double cost_ns) {
  step_ = step;
  detail_ = static_cast<uint32_t>(step);
  charge_ns_ = static_cast<uint32_t>(cost_ns);
  from_.simulator().schedule(*this, where.core(), at_ns);
}

void Connecting::ask() {
  Simulator& sim = from_.simulator();
  from_.charge(sim.costs().connect_ns);
  const int64_t latency = sim.links().latency_ns(from_.index(), to_.index());
  go(Step::asking, to_, from_.leave_ns(0) + latency, sim.costs().accept_ns);
}

void Connecting::fire() {
  Simulator& sim = from_.simulator();
  switch (step_) {
    case Step::asking:
      if (sim.links().cut(from_.index(), to_.index())) return try_later();
      return answer();
    case Step::accepted:
      if (sim.links().cut(to_.index(), from_.index())) return try_later();
      return complete(std::move(stream_));
    case Step::refused:
      if (sim.links().cut(to_.index(), from_.index())) return try_later();
      return complete(fail_errno(ECONNREFUSED, "connect to {}", address_.text()));
    case Step::waiting:
      if (sim.now_ns() >= give_up_at_ns_)
        return complete(fail_errno(ETIMEDOUT, "connect to {}", address_.text()));
      return ask();
  }
}

void Connecting::answer() {
  Simulator& sim = from_.simulator();
  const int64_t back = to_.leave_ns(0) + sim.links().latency_ns(to_.index(), from_.index());
  SimListener* listener = to_.ports().find(address_, from_.index() != to_.index());
  if (listener == nullptr) return go(Step::refused, from_, back, 0);
  SimStream::Pair ends = SimStream::connect(from_, to_);
  if (address_.kind == Address::Kind::unix_socket) {
    ends.a->set_peer_credentials(listener->owner());
    ends.b->set_peer_credentials(who_);
  }
  if (!listener->offer(std::move(ends.b))) return try_later();
  stream_ = std::move(ends.a);
  go(Step::accepted, from_, back, 0);
}

void Connecting::drop() { try_later(); }

void Connecting::try_later() {
  Simulator& sim = from_.simulator();
  stream_.reset();
  const int64_t at = std::min(sim.now_ns() + pause_ns_, give_up_at_ns_);
  pause_ns_ *= 2;
  go(Step::waiting, from_, at, 0);
}

void Connecting::on_cancel() {
  clock()->disarm(*this);
  stream_.reset();
  complete(fail(cancelled_error()));
}

void Connecting::complete(Result<std::unique_ptr<Stream>> result) {
  result_ = std::move(result);
  wake();
}

}  // namespace tutti
