#include "world/sim/flow_solver.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "base/assert.h"

namespace tutti {

namespace {

// A link and the rate at which it would be full, smallest first; of equals the lower number.
struct Candidate {
  double share;
  uint32_t link;
  bool operator>(const Candidate& other) const {
    return share != other.share ? share > other.share : link > other.link;
  }
};

}  // namespace

uint32_t FlowSolver::add_link(double bytes_per_s) {
  TUTTI_ASSERT(bytes_per_s > 0, "a link carries something");
  links_.push_back({.bytes_per_s = bytes_per_s});
  return static_cast<uint32_t>(links_.size() - 1);
}

void FlowSolver::mark(uint32_t link) {
  if (std::exchange(links_[link].dirty, true)) return;
  dirty_.push_back(link);
}

uint32_t FlowSolver::begin(std::span<const uint32_t> links, uint32_t urgency_class) {
  TUTTI_ASSERT(links.size() <= kMostHops && urgency_class < kClasses, "a flow as there are");
  uint32_t number = static_cast<uint32_t>(flows_.size());
  if (free_.empty()) {
    flows_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  Flow& flow = flows_[number];
  flow = {};
  flow.alive = true;
  flow.urgency_class = static_cast<uint8_t>(urgency_class);
  flow.hops = static_cast<uint8_t>(links.size());
  for (uint32_t hop = 0; hop < links.size(); ++hop) {
    Link& link = links_[links[hop]];
    flow.links[hop] = links[hop];
    flow.places[hop] = static_cast<uint32_t>(link.flows.size());
    link.flows.push_back({number, hop});
    mark(links[hop]);
  }
  if (links.empty()) lone_.push_back(number);
  ++flow_count_;
  return number;
}

void FlowSolver::end(uint32_t number) {
  Flow& flow = flows_[number];
  TUTTI_ASSERT(flow.alive, "a flow ends once");
  for (uint32_t hop = 0; hop < flow.hops; ++hop) {
    Link& link = links_[flow.links[hop]];
    const Crossing last = link.flows.back();
    link.flows[flow.places[hop]] = last;
    flows_[last.flow].places[last.hop] = flow.places[hop];
    link.flows.pop_back();
    mark(flow.links[hop]);
  }
  if (flow.hops == 0) std::erase(lone_, number);
  flow.alive = false;
  free_.push_back(number);
  --flow_count_;
}

double FlowSolver::used(uint32_t link) const {
  double sum = 0;
  for (const Crossing& crossing : links_[link].flows) sum += flows_[crossing.flow].rate;
  return sum;
}

void FlowSolver::reach_link(uint32_t number) {
  Link& link = links_[number];
  if (std::exchange(link.reached, true)) return;
  link.left = link.bytes_per_s;
  reached_links_.push_back(number);
}

// Everything that shares links with what changed, directly or through others.
void FlowSolver::reach() {
  reached_links_.clear();
  reached_flows_.clear();
  for (const uint32_t link : dirty_) {
    links_[link].dirty = false;
    reach_link(link);
  }
  dirty_.clear();
  for (size_t next = 0; next < reached_links_.size(); ++next) {
    for (const Crossing& crossing : links_[reached_links_[next]].flows) {
      Flow& flow = flows_[crossing.flow];
      if (std::exchange(flow.reached, true)) continue;
      flow.fixed = false;
      flow.before = flow.rate;
      reached_flows_.push_back(crossing.flow);
      for (uint32_t hop = 0; hop < flow.hops; ++hop) reach_link(flow.links[hop]);
    }
  }
}

void FlowSolver::fix(uint32_t number, double rate) {
  Flow& flow = flows_[number];
  flow.fixed = true;
  flow.rate = rate;
  for (uint32_t hop = 0; hop < flow.hops; ++hop) {
    Link& link = links_[flow.links[hop]];
    link.left = std::max(0.0, link.left - rate);
    --link.growing;
  }
}

void FlowSolver::fill(uint32_t urgency_class) {
  for (const uint32_t number : reached_flows_) {
    const Flow& flow = flows_[number];
    if (flow.urgency_class != urgency_class) continue;
    for (uint32_t hop = 0; hop < flow.hops; ++hop) ++links_[flow.links[hop]].growing;
  }
  const auto share_of = [&](uint32_t link) { return links_[link].left / links_[link].growing; };
  std::vector<Candidate> candidates;
  for (const uint32_t link : reached_links_)
    if (links_[link].growing != 0) candidates.push_back({share_of(link), link});
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> fullest(
      std::greater<>(), std::move(candidates));
  while (!fullest.empty()) {
    const Candidate first = fullest.top();
    fullest.pop();
    Link& link = links_[first.link];
    if (link.growing == 0) continue;
    // Others were fixed meanwhile: there is more for each, never less.
    const double share = share_of(first.link);
    if (share > first.share) {
      fullest.push({share, first.link});
      continue;
    }
    for (const Crossing& crossing : link.flows) {
      const Flow& flow = flows_[crossing.flow];
      if (!flow.fixed && flow.urgency_class == urgency_class) fix(crossing.flow, share);
    }
  }
}

std::span<const uint32_t> FlowSolver::solve() {
  reach();
  for (uint32_t urgency_class = 0; urgency_class < kClasses; ++urgency_class) fill(urgency_class);
  changed_.clear();
  for (const uint32_t number : reached_flows_) {
    flows_[number].reached = false;
    if (flows_[number].rate != flows_[number].before) changed_.push_back(number);
  }
  for (const uint32_t number : reached_links_) links_[number].reached = false;
  for (const uint32_t number : lone_) {
    flows_[number].rate = kUnlimited;
    changed_.push_back(number);
  }
  lone_.clear();
  std::ranges::sort(changed_);
  return changed_;
}

}  // namespace tutti
