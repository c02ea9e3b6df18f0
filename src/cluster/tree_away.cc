// Agents that said that they end and come back, while their hosts go on. The root decides who is
// away, as it decides who is lost, and tells everybody; everybody remembers it, so that it is known
// to whoever is the root next.
#include <algorithm>

#include "base/log.h"
#include "cluster/tree_link.h"

namespace tutti {
namespace {

// The root ends the wait. Others remember it a little longer, so that they never end it before.
constexpr Duration kAwayMargin = 5s;
// A head that has just started knows nobody who is away. Those who know hang below it by then.
constexpr Duration kHearsayTime = 15s;

tree::Envelope away_message(const RangeSet& nodes, Duration time) {
  tree::Envelope envelope;
  for (const uint32_t end : nodes.pairs()) envelope.mutable_away()->add_nodes(end);
  envelope.mutable_away()->set_for_ns(to_ns(time));
  return envelope;
}

}  // namespace

void TreeNode::leave_for(Duration time) {
  time = std::min(time, kLongestAway);
  if (up_ == nullptr) return note_away(RangeSet(node_), time);
  up_->post(away_message(RangeSet(node_), time));
}

RangeSet TreeNode::away() const {
  RangeSet nodes;
  for (const Away& away : away_.get()) nodes.add(away.nodes);
  return nodes;
}

std::optional<Duration> TreeNode::away_for(NodeId node) const {
  for (const Away& away : away_.get())
    if (away.nodes.contains(node)) return std::max(Duration(), away.until - world_.clock().now());
  return {};
}

Result<void> TreeNode::on_away(TreeLink& link, const tree::Away& told) {
  TRY(const RangeSet nodes, RangeSet::from_pairs(span_of(told.nodes())));
  const Duration time = std::clamp(Duration(told.for_ns()), Duration(), kLongestAway);
  if (link.upwards) {
    if (&link == up_.get()) note_away(nodes, time);
    return {};
  }
  if (up_ != nullptr) {
    tree::Envelope envelope;
    *envelope.mutable_away() = told;
    up_->post(envelope);
    return {};
  }
  if (!told.hearsay()) {
    note_away(nodes, time);
    return {};
  }
  // Whoever was cut off may not have heard that they are back, or lost since: the head knows.
  const RangeSet unknown = nodes.minus(away());
  const RangeSet gone = unknown.minus(alive_);
  const bool is_sure = is_head_ && world_.clock().now() >= started_at_ + kHearsayTime;
  if (!is_sure) {
    const RangeSet back = unknown.common(alive_);
    if (!back.empty()) link.post(away_message(back, Duration()));
    if (!gone.empty() && time > 0s) note_away(gone, time);
    return {};
  }
  if (!unknown.empty()) link.post(away_message(unknown, Duration()));
  if (!gone.empty()) link.post(lost_message(gone));
  return {};
}

// It is so, and everyone below hears of it. No time: they are back, or not waited for any more.
void TreeNode::note_away(const RangeSet& nodes, Duration time) {
  for (Away& away : away_.change()) away.nodes.remove(nodes);
  std::erase_if(away_.change(), [](const Away& away) { return away.nodes.empty(); });
  if (time > 0s) away_.change().push_back({world_.clock().now() + time, nodes});
  const tree::Envelope envelope = away_message(nodes, time);
  for (const auto& child : children_)
    if (child->node != kNobody) child->post(envelope);
  user_.on_away(nodes, time > 0s);
  alarm_.ring();
}

// They hang somewhere again. If the root has missed them it hears of that itself.
void TreeNode::note_back(const RangeSet& nodes) {
  const RangeSet back = nodes.common(away());
  if (back.empty()) return;
  if (up_ == nullptr) return note_away(back, Duration());
  up_->post(away_message(back, Duration()));
}

// To a neighbour that has just become one.
void TreeNode::tell_away(TreeLink& link) {
  for (const Away& away : away_.get()) {
    const Duration left = away.until - world_.clock().now();
    if (left <= 0s) continue;
    tree::Envelope envelope = away_message(away.nodes, left);
    envelope.mutable_away()->set_hearsay(link.upwards);
    link.post(envelope);
  }
}

Instant TreeNode::away_due() const {
  Instant due = kNever;
  for (const Away& away : away_.get()) due = std::min(due, away.until);
  return due == kNever || up_ == nullptr ? due : due + kAwayMargin;
}

// Who did not come back is as lost as anybody. Only the head can say so: what is cut off from it
// only stops to wait for them.
void TreeNode::expire_away() {
  const Instant now = world_.clock().now() - (up_ == nullptr ? Duration() : kAwayMargin);
  RangeSet over;
  for (const Away& away : away_.get())
    if (away.until <= now) over.add(away.nodes);
  if (over.empty()) return;
  note_away(over, Duration());
  const RangeSet gone = over.minus(alive_);
  if (!is_head_ || gone.empty()) return;
  TUTTI_LOG(info, "agents did not come back", {{"nodes", gone.text()}});
  user_.on_alive({}, gone);
  pass_on_lost(gone);
}

}  // namespace tutti
