#include "cluster/tree_node.h"

#include <algorithm>

#include "base/log.h"
#include "cluster/tree_link.h"

namespace tutti {
namespace {

// What happens to many nodes at once travels together; a level of the tree costs this much delay.
constexpr Duration kNewsDelay = 20ms;
// Longer than finding another place takes.
constexpr Duration kLossMemory = 5s;

}  // namespace

tree::Envelope lost_message(const RangeSet& nodes) {
  tree::Envelope envelope;
  for (const uint32_t end : nodes.pairs()) envelope.mutable_lost()->add_nodes(end);
  return envelope;
}

TreeNode::TreeNode(World& world, wire::Seals& seals, TreeOptions options, TreeUser& user)
    : world_(world),
      seals_(seals),
      user_(user),
      shape_(options.shape),
      node_(options.node),
      is_head_(options.self.role == wire::Role::head),
      lowest_version_(options.lowest_version),
      highest_version_(options.highest_version),
      instance_(world.random().next()),
      started_at_(world.clock().now()),
      address_(std::move(options.address)),
      about_(std::move(options.about)),
      self_(std::move(options.self)),
      alarm_(world.clock()) {
  tree::Welcome places;
  for (tree::Place& place : options.places) *places.add_places() = std::move(place);
  places_ = places.SerializeAsString();
  if (numbered()) alive_.add(node_);
}

TreeNode::~TreeNode() = default;

NodeId TreeNode::above() const { return up_ == nullptr ? kHead : up_->node; }

Task<Result<void>> TreeNode::run(Listener& listener) {
  Scope strands;
  start(listener, strands);
  auto joined = co_await strands.join();
  const Shield until_done;
  co_await finish();
  co_return joined;
}

void TreeNode::start(Listener& listener, Scope& strands) {
  strands_ = &strands;
  listener.serve(*this, strands);
  strands.spawn(work());
}

// Links have strands of their own; nothing of them may outlive us.
Task<void> TreeNode::finish() {
  strands_ = nullptr;
  while (up_ != nullptr || !children_.empty() || !ended_.empty()) {
    // One that is cut takes itself to those that ended.
    TreeLink* last = up_ != nullptr       ? up_.get()
                     : !children_.empty() ? children_.back().get()
                                          : ended_.back().get();
    last->cut(cancelled_error());
    auto gone = co_await last->strands.join();
    static_cast<void>(gone);
    reap_links();
  }
}

Task<Result<void>> TreeNode::work() {
  // Not all in step: a tick comes anywhere within the first.
  const auto phase = static_cast<int64_t>(world_.random().below(to_ns(kTick)));
  next_tick_ = world_.clock().now() + Duration(phase);
  while (true) {
    if (!is_head_ && !hanging_ && world_.clock().now() >= next_hang_ &&
        (up_ == nullptr || up_place_ > 0)) {
      hanging_ = true;
      strands_->spawn(hang());
    }
    const Instant due = next_due();
    auto woken = co_await alarm_.until(due);
    if (!woken) co_return woken;
    reap_links();
    const Instant now = world_.clock().now();
    if (now >= next_tick_) tick();
    expire_orphans();
    expire_away();
    if (now >= news_due_) send_news();
    if (now >= reports_due_) send_reports();
  }
}

Instant TreeNode::next_due() const {
  Instant due = std::min({next_tick_, news_due_, reports_due_, away_due()});
  for (const Orphans& orphans : orphans_.get()) due = std::min(due, orphans.until);
  const bool looks = !is_head_ && !hanging_ && (up_ == nullptr || up_place_ > 0);
  return looks ? std::min(due, next_hang_) : due;
}

void TreeNode::tick() {
  const Instant now = world_.clock().now();
  // Who did not get to run cannot say that others were silent.
  const bool late = now > next_tick_ + kTick;
  next_tick_ = now + kTick;
  const auto check = [&](TreeLink& link) {
    const uint32_t heard = link.courier->heard();
    if (heard != link.last_heard) link.silent_ticks = 0;
    if (heard == link.last_heard && !late) ++link.silent_ticks;
    link.last_heard = heard;
    if (link.silent_ticks >= kSilentTicks) {
      link.was_silent = true;
      link.cut(Error(Code::deadline, "it was silent"));
    } else if (link.courier->queued() == 0) {
      link.courier->post({});
    }
  };
  if (up_ != nullptr) check(*up_);
  for (const auto& child : children_) check(*child);
}

void TreeNode::reap_links() {
  std::erase_if(ended_, [](const auto& link) { return link->over(); });
}

// They hang below us again.
void TreeNode::find_again(const RangeSet& nodes) {
  if (orphans_.get().empty()) return;
  for (Orphans& orphans : orphans_.change()) orphans.nodes.remove(nodes);
}

void TreeNode::expire_orphans() {
  if (orphans_.get().empty()) return;
  const Instant now = world_.clock().now();
  RangeSet gone;
  std::erase_if(orphans_.change(), [&](const Orphans& orphans) {
    if (orphans.until <= now) gone.add(orphans.nodes);
    return orphans.until <= now;
  });
  if (orphans_.get().empty()) orphans_.clear();
  if (!gone.empty()) drop_alive(std::move(gone));
}

void TreeNode::add_alive(const RangeSet& nodes) {
  const RangeSet fresh = nodes.minus(alive_);
  if (fresh.empty()) return;
  alive_.add(fresh);
  news_added_.add(fresh);
  if (news_due_ == kNever) news_due_ = world_.clock().now() + kNewsDelay;
  alarm_.ring();
}

void TreeNode::drop_alive(RangeSet nodes) {
  if (numbered()) nodes.remove(node_);
  for (const auto& child : children_) nodes.remove(child->alive);
  for (const Orphans& orphans : orphans_.get()) nodes.remove(orphans.nodes);
  nodes = nodes.common(alive_);
  if (nodes.empty()) return;
  alive_.remove(nodes);
  news_added_.remove(nodes);
  news_removed_.add(nodes);
  if (news_due_ == kNever) news_due_ = world_.clock().now() + kNewsDelay;
  alarm_.ring();
}

// Who was gone and came back within one delay is in both: above they must hear of both.
void TreeNode::send_news() {
  news_due_ = kNever;
  const RangeSet added = std::exchange(news_added_, {});
  const RangeSet removed = std::exchange(news_removed_, {});
  if (up_ != nullptr) {
    tree::Envelope envelope;
    for (const uint32_t end : added.pairs()) envelope.mutable_news()->add_added(end);
    for (const uint32_t end : removed.pairs()) envelope.mutable_news()->add_removed(end);
    up_->post(envelope);
    return;
  }
  note_back(added);
  user_.on_alive(added, removed);
  const RangeSet lost = removed.minus(away());
  if (!lost.empty()) pass_on_lost(lost);
}

void TreeNode::pass_on_lost(const RangeSet& nodes) {
  const Instant now = world_.clock().now();
  std::vector<Loss>& losses = losses_.change();
  std::erase_if(losses, [&](const Loss& loss) { return loss.at + kLossMemory < now; });
  losses.push_back({now, nodes});
  const tree::Envelope envelope = lost_message(nodes);
  for (const auto& child : children_)
    if (child->node != kNobody) child->post(envelope);
  user_.on_lost(nodes);
}

// It was on its way here when others heard of them.
void TreeNode::tell_losses(TreeLink& child) {
  RangeSet missed;
  for (const Loss& loss : losses_.get())
    if (loss.at + kLossMemory >= world_.clock().now()) missed.add(loss.nodes);
  missed.remove(alive_);
  missed.remove(away());
  if (!missed.empty()) child.post(lost_message(missed));
}

}  // namespace tutti
