#include "fabric/sim/sim_errand.h"

#include <algorithm>
#include <cstring>

#include "fabric/sim/sim_transport.h"

namespace tutti::simnet {

namespace {

// Retries of what a cut path holds up, doubled; the stream's are alike (world/sim/stream.h).
constexpr int64_t kRetryNs = 200'000'000;
constexpr int64_t kLongestRetryNs = 2'000'000'000;
// Before a rank that is not in the epoch yet is looked for again.
constexpr int64_t kAbsentNs = 1'000'000;
// Of calls whose tag nobody can refuse.
constexpr Tag kNoTag{.scope = ~uint64_t{0}};

void copy_to(MutableBytes into, Bytes from) {
  if (!from.empty()) std::memcpy(into.data(), from.data(), from.size());
}

}  // namespace

// ---- Errands and hops ----

Errand::Errand(SimTransport& transport, Tag tag)
    : transport_(transport), place_(transport.calls().emplace(tag, this)) {}

Errand::~Errand() { transport_.calls().erase(place_); }

SimHub& Errand::hub() const { return transport_.hub(); }

void Hop::go(SimHub& hub, uint32_t from_host, uint32_t to_host, int64_t at_ns, double charge_ns) {
  hub_ = &hub;
  from_ = from_host;
  to_ = to_host;
  pause_ns_ = kRetryNs;
  charge_ns_ = static_cast<uint32_t>(charge_ns);
  hub.simulator().schedule(*this, hub.simulator().host(to_host).core(), at_ns);
}

void Hop::pass(SimHub& hub, int64_t at_ns) {
  hub_ = &hub;
  from_ = to_ = kDirector;
  charge_ns_ = 0;
  hub.simulator().schedule(*this, hub.simulator().director(), at_ns);
}

void Hop::stop() {
  if (armed()) clock()->disarm(*this);
}

void Hop::fire() {
  if (to_ == kDirector || !hub_->cut(from_, to_)) return come();
  Simulator& sim = hub_->simulator();
  sim.schedule(*this, sim.host(to_).core(), sim.now_ns() + pause_ns_);
  pause_ns_ = std::min(2 * pause_ns_, kLongestRetryNs);
}

// ---- Journeys ----

Journey::Journey(SimTransport& transport, Tag tag, uint32_t peer, Priority priority)
    : Errand(transport, tag), own_(transport.rank()), peer_(peer), priority_(priority) {}

int64_t Journey::leaves_ns(uint32_t rank) const {
  return std::max(hub().simulator().now_ns(), hub().sim_host(rank).core().ready_at_ns());
}

void Journey::ask(uint32_t from, uint32_t to, int64_t not_before_ns) {
  const CostTable& costs = hub().simulator().costs();
  const uint32_t from_host = hub().host_of(from);
  const uint32_t to_host = hub().host_of(to);
  step_ = Step::word;
  int64_t at = not_before_ns;
  if (at == 0) {
    hub().sim_host(from).charge(costs.send_ns);
    at = leaves_ns(from) + hub().latency_ns(from_host, to_host);
  }
  go(hub(), from_host, to_host, at, costs.receive_ns);
}

// Bytes cost their sender time, but the first are gone before the last are handed over.
void Journey::move(uint32_t from, uint32_t to, uint64_t bytes) {
  const CostTable& costs = hub().simulator().costs();
  SimHost& host = hub().sim_host(from);
  host.charge(costs.send_ns);
  const int64_t leaves = leaves_ns(from);
  host.charge(costs.send_byte_ns * static_cast<double>(bytes));
  from_ = from;
  to_ = to;
  bytes_ = bytes;
  if (static_cast<double>(bytes) > hub().model().packet_bytes) {
    step_ = Step::leaving;
    if (leaves > hub().simulator().now_ns()) return pass(hub(), leaves);
    return flow();
  }
  const uint32_t from_host = hub().host_of(from);
  const uint32_t to_host = hub().host_of(to);
  const int64_t through = hub().net().send_packet(from_host, to_host, bytes, leaves);
  step_ = Step::bytes;
  go(hub(), from_host, to_host, leaves + through + hub().latency_ns(from_host, to_host),
     costs.receive_ns + costs.receive_byte_ns * static_cast<double>(bytes));
}

void Journey::flow() {
  hub().net().begin(*this, hub().host_of(from_), hub().host_of(to_), bytes_,
                    static_cast<uint32_t>(priority_));
}

void Journey::drained() {
  const CostTable& costs = hub().simulator().costs();
  const uint32_t from_host = hub().host_of(from_);
  const uint32_t to_host = hub().host_of(to_);
  step_ = Step::bytes;
  go(hub(), from_host, to_host, hub().simulator().now_ns() + hub().latency_ns(from_host, to_host),
     costs.receive_ns + costs.receive_byte_ns * static_cast<double>(bytes_));
}

void Journey::reply(Result<void> result) {
  const uint32_t from_host = hub().host_of(peer_);
  const uint32_t to_host = hub().host_of(own_);
  const CostTable& costs = hub().simulator().costs();
  hub().sim_host(peer_).charge(costs.send_ns);
  reply_ = std::move(result);
  step_ = Step::reply;
  go(hub(), from_host, to_host, leaves_ns(peer_) + hub().latency_ns(from_host, to_host),
     costs.receive_ns);
}

void Journey::look_again() {
  repeated_ = step_;
  step_ = Step::again;
  pass(hub(), hub().simulator().now_ns() + kAbsentNs);
}

void Journey::halt() {
  Flow::stop();
  Hop::stop();
  step_ = Step::none;
}

bool Journey::there_in_epoch(uint64_t epoch, bool& never) const {
  const SimTransport* there = hub().transport(peer_);
  never = there != nullptr && there->epoch() > epoch;
  return there != nullptr && there->epoch() == epoch;
}

void Journey::come() {
  if (step_ == Step::again) step_ = repeated_;
  switch (step_) {
    case Step::word: return asked();
    case Step::leaving: return flow();
    case Step::bytes: return bytes_came();
    case Step::reply: return finish(std::move(reply_));
    case Step::again:
    case Step::none: TUTTI_ASSERT(false, "nothing is on its way");
  }
}

// ---- Sending and receiving ----

Send::Send(SimTransport& transport, uint32_t rank, Tag tag, Bytes bytes, Priority priority)
    : Journey(transport, tag, rank, priority),
      key_{transport.epoch(), transport.rank(), tag},
      bytes_(bytes) {}

bool Send::eager() const { return static_cast<double>(bytes_.size()) <= hub().model().eager_bytes; }

void Send::start() {
  if (eager()) return move(own(), peer(), bytes_.size());
  auto& receives = hub().mailbox(peer()).receives;
  const auto waiting = receives.lower_bound(key_);
  if (waiting == receives.end() || waiting->first != key_) return wait_in_mailbox();
  take(*waiting->second);
}

void Send::wait_in_mailbox() { place_ = hub().mailbox(peer()).sends.emplace(key_, this); }

void Send::take(Receive& receive) {
  Mailbox& box = hub().mailbox(peer());
  if (place_) box.sends.erase(*place_);
  if (receive.place_) box.receives.erase(*receive.place_);
  place_.reset();
  receive.place_.reset();
  if (came_) return deliver(receive);
  taken_by_ = &receive;
  receive.send_ = this;
  const uint32_t here = hub().host_of(own());
  const uint32_t there = hub().host_of(peer());
  const int64_t asked_at = receive.asks_at_ns_ + hub().latency_ns(there, here);
  ask(peer(), own(), std::max(hub().simulator().now_ns(), asked_at));
}

// Whoever received it is gone: another may.
void Send::untake() {
  halt();
  taken_by_ = nullptr;
  wait_in_mailbox();
}

// Sizes that differ need no bytes to be found out.
void Send::asked() {
  const bool fits = taken_by_->into_.size() == bytes_.size();
  move(own(), peer(), fits ? bytes_.size() : 0);
}

void Send::bytes_came() {
  came_ = true;
  if (taken_by_ != nullptr) return deliver(*taken_by_);
  auto& receives = hub().mailbox(peer()).receives;
  const auto waiting = receives.lower_bound(key_);
  if (waiting == receives.end() || waiting->first != key_) return wait_in_mailbox();
  take(*waiting->second);
}

void Send::deliver(Receive& receive) {
  taken_by_ = nullptr;
  receive.send_ = nullptr;
  Result<void> outcome;
  if (receive.into_.size() == bytes_.size())
    copy_to(receive.into_, bytes_);
  else
    outcome = fail(Code::invalid, "rank {} sends {} bytes where rank {} expects {}", own(),
                   bytes_.size(), peer(), receive.into_.size());
  receive.finish(outcome);
  reply(std::move(outcome));
}

void Send::withdraw() {
  halt();
  if (place_) hub().mailbox(peer()).sends.erase(*place_);
  place_.reset();
  if (taken_by_ == nullptr) return;
  Receive& receive = *std::exchange(taken_by_, nullptr);
  receive.send_ = nullptr;
  receive.wait_in_mailbox();
}

Receive::Receive(SimTransport& transport, uint32_t rank, Tag tag, MutableBytes into)
    : Errand(transport, tag),
      key_{transport.epoch(), rank, tag},
      rank_(transport.rank()),
      into_(into) {}

void Receive::start() {
  asks_at_ns_ = std::max(hub().simulator().now_ns(), hub().sim_host(rank_).core().ready_at_ns());
  auto& sends = hub().mailbox(rank_).sends;
  const auto waiting = sends.lower_bound(key_);
  if (waiting == sends.end() || waiting->first != key_) return wait_in_mailbox();
  waiting->second->take(*this);
}

void Receive::wait_in_mailbox() { place_ = hub().mailbox(rank_).receives.emplace(key_, this); }

void Receive::withdraw() {
  if (place_) hub().mailbox(rank_).receives.erase(*place_);
  place_.reset();
  if (send_ != nullptr) std::exchange(send_, nullptr)->untake();
}

// ---- One-sided ----

Put::Put(SimTransport& transport, uint32_t rank, uint64_t offset, Bytes from, Priority priority)
    : Journey(transport, kNoTag, rank, priority),
      epoch_(transport.epoch()),
      offset_(offset),
      from_(from) {}

void Put::bytes_came() {
  bool never = false;
  if (!there_in_epoch(epoch_, never)) return never ? void() : look_again();
  auto room = hub().transport(peer())->writable(offset_, from_.size());
  if (!room) return reply(fail(std::move(room).error()));
  copy_to(*room, from_);
  reply({});
}

Get::Get(SimTransport& transport, uint32_t rank, const Strides& from, MutableBytes into,
         Priority priority, Tag tag)
    : Journey(transport, tag == Tag{} ? kNoTag : tag, rank, priority),
      epoch_(transport.epoch()),
      from_(from),
      into_(into) {}

void Get::asked() {
  bool never = false;
  if (!there_in_epoch(epoch_, never)) return never ? void() : look_again();
  auto there = hub().transport(peer())->readable(from_, into_.size());
  if (!there) return reply(fail(std::move(there).error()));
  move(peer(), own(), into_.size());
}

void Get::bytes_came() {
  bool never = false;
  if (!there_in_epoch(epoch_, never)) return;  // it died meanwhile: the epoch is about to end
  from_.gather(*hub().transport(peer())->readable(from_, into_.size()), 0, into_);
  hub().note_got(into_.size());
  finish({});
}

Telling::Telling(SimTransport& transport, uint32_t rank, const Refusal& refusal)
    : Journey(transport, kNoTag, rank, Priority::urgent),
      epoch_(transport.epoch()),
      refusal_(refusal) {}

void Telling::asked() {
  bool never = false;
  if (!there_in_epoch(epoch_, never)) return never ? void() : look_again();
  hub().transport(peer())->refuse_here(refusal_);
  reply({});
}

}  // namespace tutti::simnet
