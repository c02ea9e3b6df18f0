#include "world/sim/flow_net.h"

#include <algorithm>
#include <cmath>

#include "base/assert.h"

namespace tutti {

namespace {
constexpr double kNsPerS = 1e9;

// To whole nanoseconds, up, but for what rounding of rates adds.
int64_t whole_ns(double ns) {
  constexpr double kRounding = 1e-3;
  return static_cast<int64_t>(std::ceil(ns - kRounding));
}
}  // namespace

FlowNet::FlowNet(Clock& clock, NetModel model, uint32_t hosts)
    : clock_(clock), model_(std::move(model)), hosts_(hosts) {
  const uint32_t racks = hosts == 0 ? 0 : model_.rack_of(hosts - 1) + 1;
  const auto add = [&](double bytes_per_s) {
    solver_.add_link(bytes_per_s);
    bytes_per_ns_.push_back(bytes_per_s / kNsPerS);
  };
  for (uint32_t i = 0; i < 2 * hosts; ++i) add(model_.host_bytes_per_s);
  for (uint32_t i = 0; i < 2 * racks; ++i) add(model_.rack_bytes_per_s);
  free_at_ns_.resize(solver_.links());
}

FlowNet::~FlowNet() {
  for (Flow* flow : flows_)
    if (flow != nullptr) flow->net_ = nullptr;
}

std::vector<uint32_t> FlowNet::path(uint32_t from, uint32_t to) const {
  TUTTI_ASSERT(from < hosts_ && to < hosts_, "hosts of this net");
  if (from == to) return {};
  const uint32_t up = 2 * hosts_ + 2 * model_.rack_of(from);
  const uint32_t down = 2 * hosts_ + 2 * model_.rack_of(to) + 1;
  if (model_.rack_of(from) == model_.rack_of(to)) return {2 * from, 2 * to + 1};
  return {2 * from, up, down, 2 * to + 1};
}

void FlowNet::begin(Flow& flow, uint32_t from, uint32_t to, uint64_t bytes,
                    uint32_t urgency_class) {
  TUTTI_ASSERT(!flow.flowing(), "a flow is begun once at a time");
  flow.net_ = this;
  flow.number_ = solver_.begin(path(from, to), urgency_class);
  flow.left_ = static_cast<double>(bytes);
  flow.rate_ = 0;
  flow.since_ns_ = now_ns();
  flow.ends_at_ns_ = kNoEnd;
  if (flows_.size() <= flow.number_) flows_.resize(flow.number_ + 1);
  flows_[flow.number_] = &flow;
  bytes_begun_ += bytes;
  schedule();
}

int64_t FlowNet::send_packet(uint32_t from, uint32_t to, uint64_t bytes, int64_t at_ns) {
  double at = static_cast<double>(at_ns);
  double slowest = 0;  // ns to pass the narrowest link
  for (const uint32_t link : path(from, to)) {
    const double ns = static_cast<double>(bytes) / bytes_per_ns_[link];
    at = std::max(at, free_at_ns_[link]);
    free_at_ns_[link] = at + ns;
    slowest = std::max(slowest, ns);
  }
  return whole_ns(at + slowest) - at_ns;
}

void FlowNet::remove(Flow& flow) {
  if (flow.ends_at_ns_ != kNoEnd) ends_.erase({flow.ends_at_ns_, flow.number_});
  solver_.end(flow.number_);
  flows_[flow.number_] = nullptr;
  flow.net_ = nullptr;
  schedule();
}

void FlowNet::fire() {
  const int64_t now = now_ns();
  // One by one: who is told may end others.
  while (!ends_.empty() && ends_.begin()->first <= now) {
    Flow& flow = *flows_[ends_.begin()->second];
    remove(flow);
    flow.drained();
  }
  if (!solver_.settled() && now >= solved_at_ns_ + static_cast<int64_t>(model_.resolve_ns)) solve();
  schedule();
}

void FlowNet::solve() {
  const int64_t now = now_ns();
  solved_at_ns_ = now;
  ++solves_;
  for (const uint32_t number : solver_.solve()) {
    Flow& flow = *flows_[number];
    const auto passed = static_cast<double>(now - flow.since_ns_);
    flow.left_ = std::max(0.0, flow.left_ - flow.rate_ * passed);
    flow.rate_ = solver_.rate(number) / kNsPerS;
    flow.since_ns_ = now;
    if (flow.ends_at_ns_ != kNoEnd) ends_.erase({flow.ends_at_ns_, number});
    flow.ends_at_ns_ = kNoEnd;
    if (flow.rate_ == 0) continue;  // all of its way is taken by what is more urgent
    flow.ends_at_ns_ = now + whole_ns(flow.left_ / flow.rate_);
    ends_.emplace(flow.ends_at_ns_, number);
  }
}

// At the next end, or when rates are to be found anew, whichever is first.
void FlowNet::schedule() {
  int64_t at = ends_.empty() ? kNoEnd : ends_.begin()->first;
  if (!solver_.settled()) {
    const int64_t soonest = solved_at_ns_ + static_cast<int64_t>(model_.resolve_ns);
    at = std::min(at, std::max(now_ns(), soonest));
  }
  if (at == kNoEnd) return clock_.disarm(*this);
  if (armed() && armed_for_ns_ == at) return;
  armed_for_ns_ = at;
  clock_.arm(*this, instant_from_ns(at));
}

}  // namespace tutti
