// How links of the tree begin and end.
#include <algorithm>

#include "base/log.h"
#include "base/queue_mark.h"
#include "cluster/tree_link.h"

namespace tutti {
namespace {

// Enough for every host of a rack that lost its parent to come at once.
constexpr size_t kMostUnattached = 4096;
// A neighbour that takes longer to connect or to greet is as good as away.
constexpr Duration kHangPatience = 2s;
// Between rounds of looking for a place, while there is none.
constexpr Duration kShortestLook = 50ms;
constexpr Duration kLongestLook = 1s;
constexpr uint64_t kMaxTreeMessage = 64_MiB;
// Whoever knocks decides how often it is refused, but not how much of the log that takes.
constexpr Duration kRefusalInterval = 10s;
constexpr int kRefusalBurst = 10;

Task<Result<void>> wait_for(Event& event) { co_return co_await event.wait(); }

tree::Envelope refusal(const Error& why) {
  tree::Envelope envelope;
  envelope.mutable_refused()->set_code(static_cast<uint32_t>(why.code()));
  envelope.mutable_refused()->set_reason(why.text());
  return envelope;
}

// For as long as it lives, however it ends.
class Count {
 public:
  explicit Count(uint32_t& counted) : counted_(counted) { ++counted_; }
  ~Count() { --counted_; }
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;

 private:
  uint32_t& counted_;
};

}  // namespace

wire::ConnectionOptions TreeNode::greeting(const std::string& address) const {
  wire::ConnectionOptions options{.self = self_, .address = address};
  options.limits.hello_timeout = kHangPatience;
  options.limits.max_message = kMaxTreeMessage;
  options.limits.max_queued = kMaxTreeMessage;
  options.lowest_version = lowest_version_;
  options.highest_version = highest_version_;
  return options;
}

void TreeNode::on_connection(std::unique_ptr<Stream> stream) {
  if (strands_ == nullptr || strands_->cancelled()) return;
  const auto unattached = std::ranges::count(children_, kNobody, &TreeLink::node);
  if (static_cast<size_t>(unattached) + greeting_ >= kMostUnattached) return;
  strands_->spawn(greet_child(std::move(stream)));
}

void TreeNode::on_accept_failed(const Error& why) {
  if (strands_ != nullptr) strands_->cancel(why);
}

Task<void> TreeNode::greet_child(std::unique_ptr<Stream> stream) {
  const Count counted(greeting_);
  TUTTI_QUEUE("tree: neighbours that are greeted", greeting_, kMostUnattached);
  wire::SealRequest request{
      .kind = Address::Kind::tcp, .side = wire::Side::accepting, .expected = {}};
  request.expected.roles = {wire::Role::agent};
  auto seal = seals_.make(std::move(request));
  if (!seal) co_return;
  auto greeted = co_await wire::Courier::greet(world_.clock(), std::move(stream), std::move(*seal),
                                               wire::Side::accepting, greeting("a child"));
  if (!greeted) {
    if (tell_refused_ == nullptr)
      tell_refused_ = std::make_unique<LogLimit>(kRefusalInterval, kRefusalBurst);
    if (tell_refused_->allow(world_.clock().now()))
      TUTTI_LOG(
          warn, "refused a neighbour",
          {{"why", greeted.error().text()}, {"more_like_it", tell_refused_->take_suppressed()}});
    co_return;
  }
  children_.push_back(std::make_unique<TreeLink>(*this, std::move(*greeted)));
  children_.back()->start();
}

TreeLink* TreeNode::find_child(NodeId node) const {
  const auto found = std::ranges::lower_bound(children_, node, {}, &TreeLink::node);
  return found != children_.end() && (*found)->node == node ? found->get() : nullptr;
}

Result<void> TreeNode::on_attach(TreeLink& link, const tree::Attach& attach) {
  if (link.node != kNobody || link.upwards) return fail(Code::corrupt, "it attached twice");
  TRY(RangeSet alive, RangeSet::from_pairs(span_of(attach.alive())));
  auto admitted = user_.admit(attach, *link.peer);
  TreeLink* before = admitted ? find_child(*admitted) : nullptr;
  const bool twin = before != nullptr && before->instance != attach.instance();
  if (twin)
    admitted = fail(Code::exists,
                    "another agent hangs here as node {}; two hosts must not have one name, and an "
                    "agent that was restarted gets its place when the old one is gone",
                    *admitted);
  if (twin) user_.on_twin({before->node, attach.instance(), link.peer->identity.name, {}});
  if (admitted && numbered() && *admitted <= node_)
    admitted = fail(Code::invalid, "node {} does not hang below node {}", *admitted, node_);
  if (admitted && !alive.empty() && alive.front() < *admitted)
    admitted = fail(Code::invalid, "node {} has a smaller one below it", *admitted);
  if (!admitted) {
    TUTTI_LOG(warn, "refused a child",
              {{"agent", link.peer->identity.name}, {"why", admitted.error().text()}});
    link.post(refusal(admitted.error()));
    return {};  // it leaves; one that stays silent is cut
  }
  alive.add(*admitted);
  RangeSet gone;
  if (before != nullptr) {
    // The same agent connected anew. It lost meanwhile whom it does not name any more.
    gone = std::exchange(before->alive, {}).minus(alive);
    before->node = kNobody;
    before->cut(Error(Code::unavailable, "it connected anew"));
  }
  link.node = *admitted;
  link.instance = attach.instance();
  link.alive = alive;
  const TreeUser::Child child{link.node, link.instance, link.peer->identity.name, attach.about()};
  link.peer.reset();
  std::ranges::stable_sort(children_, {}, &TreeLink::node);
  find_again(alive);
  drop_alive(std::move(gone));
  add_alive(alive);
  tree::Envelope envelope;
  *envelope.mutable_welcome() = welcome_for(link.node);
  link.post(envelope);
  note_back(RangeSet(*admitted));
  tell_away(link);
  tell_losses(link);
  user_.on_child(child);
  return {};
}

bool TreeNode::has_child(NodeId node, uint64_t instance) const {
  const TreeLink* child = find_child(node);
  return child != nullptr && child->instance == instance;
}

// It leaves when it hears of it; until then it is nobody, and whatever it says ends the connection.
void TreeNode::expel(NodeId node, uint64_t instance, const Error& why) {
  if (!has_child(node, instance)) return;
  TreeLink& child = *find_child(node);
  TUTTI_LOG(warn, "expelled a child", {{"node", node}, {"why", why.text()}});
  child.node = kNobody;
  RangeSet gone = std::exchange(child.alive, {});
  child.post(refusal(why));
  std::ranges::stable_sort(children_, {}, &TreeLink::node);
  drop_alive(std::move(gone));
}

// Where we may hang, best first.
tree::Welcome TreeNode::places() const {
  tree::Welcome places;
  places.ParseFromString(places_);
  return places;
}

tree::Welcome TreeNode::welcome_for(NodeId node) {
  const tree::Welcome ours = places();
  tree::Welcome welcome;
  welcome.set_node(node);
  welcome.set_fan_out(shape_.fan_out);
  for (const NodeId place : shape_.places_for(node)) {
    const auto known = std::ranges::find(ours.places(), place, &tree::Place::node);
    std::string address = place == node_ && numbered() ? address_ : std::string();
    if (address.empty() && known != ours.places().end()) address = known->address();
    if (address.empty()) address = user_.address_of(place);
    if (address.empty()) continue;
    tree::Place& told = *welcome.add_places();
    told.set_node(place);
    told.set_address(std::move(address));
  }
  return welcome;
}

void TreeNode::places_changed() {
  for (const auto& child : children_) {
    if (child->node == kNobody) continue;
    tree::Envelope envelope;
    *envelope.mutable_welcome() = welcome_for(child->node);
    child->post(envelope);
  }
}

Result<void> TreeNode::on_welcome(TreeLink& link, const tree::Welcome& welcome) {
  if (!link.upwards) return fail(Code::corrupt, "a child said welcome");
  if (node_ == kHead) {
    node_ = welcome.node();
    add_alive(RangeSet(node_));
  }
  if (welcome.node() != node_)
    return fail(Code::corrupt, "it takes us for node {}, we are {}", welcome.node(), node_);
  shape_.fan_out = std::max<uint32_t>(1, welcome.fan_out());
  tree::Welcome told;
  *told.mutable_places() = welcome.places();
  std::string packed = told.SerializeAsString();
  const bool changed = packed != places_;
  if (changed) places_ = std::move(packed);
  places_.shrink_to_fit();
  if (link.proposal != nullptr) hang_on(link);
  if (up_ != nullptr) {
    const auto place = std::ranges::find(told.places(), up_->node, &tree::Place::node);
    up_place_ = static_cast<size_t>(place - told.places().begin());
  }
  if (changed) places_changed();
  alarm_.ring();
  return {};
}

// Tries every place that is better than the present one, best first.
Task<void> TreeNode::hang() {
  const bool had_none = up_ == nullptr;
  Duration pause = kShortestLook;
  while (true) {
    const tree::Welcome known = places();
    const int stop = up_ == nullptr ? known.places_size()
                                    : std::min(static_cast<int>(up_place_), known.places_size());
    bool found = false;
    for (int index = 0; index < stop && !found; ++index) {
      const tree::Place& place = known.places(index);
      if (up_ == nullptr && silent_above_ == place.node()) continue;
      auto hung = co_await hang_below(place);
      found = hung.has_value();
      if (!hung && hung.error().code() == Code::cancelled) co_return;
      if (!hung)
        TUTTI_LOG(debug, "no place there", {{"node", place.node()}, {"why", hung.error().text()}});
    }
    silent_above_.reset();
    if (found || !had_none) break;
    const auto jitter = static_cast<int64_t>(world_.random().below(to_ns(pause)));
    auto slept = co_await world_.clock().sleep(pause / 2 + Duration(jitter) / 2);
    if (!slept) co_return;
    pause = std::min(2 * pause, kLongestLook);
  }
  hanging_ = false;
  const auto jitter = static_cast<int64_t>(world_.random().below(to_ns(kBetterPlacePause) / 4));
  next_hang_ = world_.clock().now() + kBetterPlacePause + Duration(jitter);
  // A number has just been given, or the better place is known since: no reason to wait.
  if (up_ == nullptr || (had_none && up_place_ > 0 && places().places(0).node() != kHead))
    next_hang_ = world_.clock().now();
  alarm_.ring();
}

Task<Result<void>> TreeNode::hang_below(tree::Place place) {
  const Instant patience = world_.clock().now() + kHangPatience;
  CO_TRY(Address address, Address::parse(place.address()));
  Task<Result<std::unique_ptr<Stream>>> connecting = world_.network().connect(std::move(address));
  auto stream = co_await with_deadline(world_.clock(), patience, std::move(connecting));
  if (!stream) co_return fail(std::move(stream).error());
  wire::SealRequest request{
      .kind = Address::Kind::tcp, .side = wire::Side::connecting, .expected = {}};
  request.expected.roles = {wire::Role::agent, wire::Role::head};
  CO_TRY(auto seal, seals_.make(std::move(request)));
  auto greeted = co_await wire::Courier::greet(world_.clock(), std::move(*stream), std::move(seal),
                                               wire::Side::connecting, greeting(place.address()));
  if (!greeted) co_return fail(std::move(greeted).error());

  Proposal proposal{.told = alive_.minus(moved()), .answered = {}, .answer = {}};
  auto link = std::make_unique<TreeLink>(*this, std::move(*greeted));
  TreeLink& proposed = *link;
  proposed.upwards = true;
  proposed.node = place.node();
  proposed.proposal = &proposal;
  proposed.start();
  // Until it is our parent it stands among those that ended, which are kept until they are over.
  ended_.push_back(std::move(link));
  tree::Envelope envelope;
  tree::Attach& attach = *envelope.mutable_attach();
  attach.set_node(node_);
  attach.set_instance(instance_);
  for (const uint32_t end : proposal.told.pairs()) attach.add_alive(end);
  attach.set_about(about_);
  proposed.post(envelope);
  Task<Result<void>> answer = wait_for(proposal.answered);
  auto waited = co_await with_deadline(world_.clock(), patience, std::move(answer));
  if (waited) co_return proposal.answer;
  proposed.proposal = nullptr;  // it has not ended, or it would have answered
  proposed.cut(waited.error());
  co_return waited;
}

// Who has left us for a better place, and lives below nobody here.
RangeSet TreeNode::moved() const {
  RangeSet nodes;
  for (const Orphans& orphans : orphans_.get())
    if (orphans.moved) nodes.add(orphans.nodes);
  for (const auto& child : children_) nodes.remove(child->alive);
  return nodes;
}

void TreeNode::say_moved() {
  tree::Envelope envelope;
  envelope.mutable_leaving()->set_back_within_ns(to_ns(kMoveGrace));
  envelope.mutable_leaving()->set_moved(true);
  up_->post(envelope);
}

// The link that was proposed is our parent from now on.
void TreeNode::hang_on(TreeLink& link) {
  const auto place = std::ranges::find(ended_, &link, &std::unique_ptr<TreeLink>::get);
  std::unique_ptr<TreeLink> owned = std::move(*place);
  ended_.erase(place);
  Proposal& proposal = *std::exchange(link.proposal, nullptr);
  if (up_ != nullptr) {
    say_moved();
    up_->cut(Error(Code::unavailable, "there is a better place"));
    ended_.push_back(std::move(up_));
  }
  up_ = std::move(owned);
  link.peer.reset();
  // They are above, and whom we hang below has heard of them from themselves.
  alive_.remove(moved());
  if (!orphans_.get().empty())
    std::erase_if(orphans_.change(), [](const Orphans& orphans) { return orphans.moved; });
  news_added_ = alive_.minus(proposal.told);
  news_removed_ = proposal.told.minus(alive_);
  if (!news_added_.empty() || !news_removed_.empty()) send_news();
  tell_away(*up_);
  proposal.answered.set();
  user_.on_attached();
}

void TreeNode::lost_link(TreeLink& link, const Error& why) {
  if (link.proposal != nullptr) {
    Proposal& proposal = *std::exchange(link.proposal, nullptr);
    proposal.answer = fail(why);
    proposal.answered.set();
  }
  if (&link == up_.get()) {
    TUTTI_LOG(info, "lost the node above", {{"node", link.node}, {"why", why.text()}});
    if (link.was_silent) silent_above_ = link.node;
    ended_.push_back(std::move(up_));
    next_hang_ = world_.clock().now();
  }
  const auto child = std::ranges::find(children_, &link, &std::unique_ptr<TreeLink>::get);
  if (child != children_.end()) {
    std::unique_ptr<TreeLink> owned = std::move(*child);
    children_.erase(child);
    ended_.push_back(std::move(owned));
    if (link.node != kNobody && !link.alive.empty()) miss(link);
  }
  link.strands.cancel();
  alarm_.ring();
}

// A silent host is gone; those below it have time to find another place. One whose connection was
// closed may come back itself.
void TreeNode::miss(TreeLink& link) {
  RangeSet nodes = std::exchange(link.alive, {});
  Duration grace = link.was_silent ? kOrphanGrace : kRestartGrace;
  if (link.back_within > grace) grace = link.back_within;
  if (link.was_silent) nodes.remove(link.node);
  if (!nodes.empty())
    orphans_.change().push_back({world_.clock().now() + grace, nodes, link.has_moved});
  TUTTI_LOG(info, "lost a node below",
            {{"node", link.node}, {"silent", link.was_silent}, {"below", nodes.size()}});
  if (link.was_silent) drop_alive(RangeSet(link.node));
}

}  // namespace tutti
