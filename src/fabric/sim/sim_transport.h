// A transport between simulated hosts over a modelled network (world/sim/flow_net.h): transport.h
// says what it does. For tests and tools; ranks do not link it.
//
//   SimHub hub(sim, NetModel(), host_of_rank);
//   SimTransport transport(hub, {.rank = 3});
//   transport.begin_epoch(7);
//
// A message of up to eager_bytes travels at once; a larger one when its receiver has asked for it.
// Large ones are flows that share links with all others, small ones packets. Sending and receiving
// cost their hosts processor time by the simulator's table. A cut path delays what is on it until
// it is mended; what comes to a host that is down is lost, and whoever waits for it waits until the
// epoch ends.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>

#include "fabric/sim/sim_errand.h"

namespace tutti {

struct SimTransportOptions {
  uint32_t rank = 0;
  // What put and get of others address; outlives the transport.
  MutableBytes heap{};
  // Whether others may put there; unset, nobody may anywhere.
  std::function<bool(uint64_t offset, uint64_t bytes)> may_put{};
};

class SimTransport final : public Transport {
 public:
  // The hub outlives it; whoever calls it is gone before it is.
  SimTransport(SimHub& hub, SimTransportOptions options);
  ~SimTransport() override;

  std::string_view name() const override { return "sim"; }
  void begin_epoch(uint64_t epoch) override;
  void end_epoch(Error why) override;
  Task<void> refuse(std::vector<uint32_t> ranks, Refusal refusal) override;
  std::vector<uint32_t> left() const override { return {left_.begin(), left_.end()}; }
  std::optional<uint32_t> left_in(uint64_t scope) const override;
  std::vector<uint32_t> linked() const override { return {linked_.begin(), linked_.end()}; }
  Task<Result<void>> send(uint32_t rank, Tag tag, Bytes bytes,
                          Priority priority = Priority::normal) override;
  Task<Result<void>> receive(uint32_t rank, Tag tag, MutableBytes into) override;
  Task<Result<void>> put(uint32_t rank, uint64_t offset, Bytes from,
                         Priority priority = Priority::normal) override;
  using Transport::get;
  Task<Result<void>> get(uint32_t rank, Strides from, MutableBytes into,
                         Priority priority = Priority::normal, Tag tag = {}) override;

  // For what is on its way.
  SimHub& hub() const { return hub_; }
  uint32_t rank() const { return options_.rank; }
  uint64_t epoch() const { return epoch_; }
  using Calls = std::multimap<Tag, simnet::Errand*>;
  Calls& calls() { return calls_; }
  void refuse_here(const Refusal& refusal);
  // What is there, of our heap, for others.
  Result<MutableBytes> readable(uint64_t offset, uint64_t bytes) const;
  Result<const std::byte*> readable(const Strides& strides, uint64_t bytes) const;
  Result<MutableBytes> writable(uint64_t offset, uint64_t bytes) const;

 private:
  Result<void> check(uint32_t rank, Tag tag);
  void end_calls(Calls::iterator first, Calls::iterator last, const Error& why);
  Task<Result<void>> tell(uint32_t rank, const Refusal& refusal);
  Task<Result<void>> tell_all(std::vector<uint32_t> ranks, const Refusal& refusal);

  SimHub& hub_;
  SimTransportOptions options_;
  uint64_t epoch_ = 0;                   // 0: none
  Error over_;                           // why there is none
  std::map<uint64_t, Refusal> refused_;  // of this epoch, by scope
  std::set<uint32_t> left_;
  std::set<uint32_t> linked_;  // who had to do with us, or we with them
  Calls calls_;                // under way
};

}  // namespace tutti
