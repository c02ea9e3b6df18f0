// Bytes on their way through a modelled network, on a simulator's clock: FlowSolver says how fast,
// this when they are through.
//
// What begins and ends at one instant is solved once. The net belongs to no host and nothing
// befalls it: who moves bytes through it decides what a dead host or a cut path means.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "world/clock.h"
#include "world/sim/flow_solver.h"
#include "world/sim/net_model.h"

namespace tutti {

class FlowNet final : private Timer {
 public:
  // Bytes that share links with others. Lives where its owner likes; leaves the net when it dies.
  class Flow {
   public:
    Flow() = default;
    Flow(const Flow&) = delete;
    Flow& operator=(const Flow&) = delete;
    bool flowing() const { return net_ != nullptr; }
    void stop() {
      if (flowing()) net_->remove(*this);
    }

   protected:
    ~Flow() { stop(); }

   private:
    friend class FlowNet;
    // Its last byte is on the wire, and it is out of the net: latency is the owner's.
    virtual void drained() = 0;

    FlowNet* net_ = nullptr;
    uint32_t number_ = 0;
    double left_ = 0;  // bytes, at since_ns_
    double rate_ = 0;  // bytes per ns, from then on
    int64_t since_ns_ = 0;
    int64_t ends_at_ns_ = kNoEnd;
  };

  // The clock is the director's: it never drifts and costs nothing.
  FlowNet(Clock& clock, NetModel model, uint32_t hosts);
  ~FlowNet();

  const NetModel& model() const { return model_; }
  // Class 0 is the most urgent.
  void begin(Flow& flow, uint32_t from, uint32_t to, uint64_t bytes, uint32_t urgency_class);
  // A message that goes behind those before it at each link: how long until its last byte is
  // through, from an instant that is not in the past.
  int64_t send_packet(uint32_t from, uint32_t to, uint64_t bytes, int64_t at_ns);

  size_t flows() const { return solver_.flows(); }
  uint64_t solves() const { return solves_; }
  uint64_t bytes_begun() const { return bytes_begun_; }

 private:
  static constexpr int64_t kNoEnd = INT64_MAX;

  // Out of a host, up from its rack, down to the other, into a host; none within a host.
  std::vector<uint32_t> path(uint32_t from, uint32_t to) const;
  int64_t now_ns() const { return to_ns(clock_.now()); }
  void remove(Flow& flow);
  void fire() override;
  void solve();
  void schedule();

  Clock& clock_;
  NetModel model_;
  uint32_t hosts_;
  FlowSolver solver_;
  std::vector<Flow*> flows_;                     // by the solver's number
  std::vector<double> free_at_ns_;               // links, of packets
  std::vector<double> bytes_per_ns_;             // links
  std::set<std::pair<int64_t, uint32_t>> ends_;  // when, and which flow
  int64_t solved_at_ns_ = INT64_MIN / 2;
  int64_t armed_for_ns_ = 0;
  uint64_t solves_ = 0;
  uint64_t bytes_begun_ = 0;
};

}  // namespace tutti
