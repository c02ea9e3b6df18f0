// How fast bytes flow when many transfers share links: max-min fairly, what is urgent first.
//
// A flow crosses some links and takes as much as it is given. Rates are found by progressive
// filling: all flows of a class grow alike until a link is full; those that cross it stay at that
// rate, the others grow on. A class gets what the more urgent ones leave. There is no time here:
// FlowNet moves bytes by these rates, and a predictor may ask for them directly.
//
// begin() and end() only note what changed; solve() finds the new rates of all flows that the
// changes reach over links in common, and leaves the rest alone. The result does not depend on the
// order of calls but for rounding, and is the same for the same calls.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class FlowSolver {
 public:
  static constexpr size_t kMostHops = 6;  // out of a host, up two tiers of switches and down again
  static constexpr uint32_t kClasses = 3;
  static constexpr double kUnlimited = 1e30;  // the rate of who crosses no link

  // Gives its number, from 0 on.
  uint32_t add_link(double bytes_per_s);
  // Gives the flow's number; those of ended flows are used again. Class 0 is the most urgent. No
  // link twice.
  uint32_t begin(std::span<const uint32_t> links, uint32_t urgency_class);
  void end(uint32_t flow);
  bool settled() const { return dirty_.empty() && lone_.empty(); }

  // The flows whose rate is another now, in the order of their numbers; until the next call.
  std::span<const uint32_t> solve();
  double rate(uint32_t flow) const { return flows_[flow].rate; }
  // Of all flows over it, as of the last solve().
  double used(uint32_t link) const;
  size_t flows() const { return flow_count_; }
  size_t links() const { return links_.size(); }

 private:
  struct Flow {
    std::array<uint32_t, kMostHops> links{};
    std::array<uint32_t, kMostHops> places{};  // in Link::flows
    uint8_t hops = 0;
    uint8_t urgency_class = 0;
    bool alive = false;
    bool fixed = false;    // while solving
    bool reached = false;  // while solving: its rate is to be found
    double rate = 0;
    double before = 0;
  };
  struct Crossing {
    uint32_t flow;
    uint32_t hop;  // of the flow: this link
  };
  struct Link {
    double bytes_per_s = 0;
    std::vector<Crossing> flows;
    bool dirty = false;
    bool reached = false;
    double left = 0;       // while solving: what nobody has yet
    uint32_t growing = 0;  // while solving: flows of the class that grow on
  };

  void mark(uint32_t link);
  void reach();
  void reach_link(uint32_t link);
  void fill(uint32_t urgency_class);
  void fix(uint32_t flow, double rate);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> dirty_;  // links
  std::vector<uint32_t> lone_;   // flows over no link, begun since the last solve()
  size_t flow_count_ = 0;
  // While solving.
  std::vector<uint32_t> reached_links_;
  std::vector<uint32_t> reached_flows_;
  std::vector<uint32_t> changed_;
};

}  // namespace tutti
