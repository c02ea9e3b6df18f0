// How messages pass through a node of the tree.
#include "base/queue_mark.h"
#include "cluster/tree_link.h"

namespace tutti {
namespace {

// Reports from many below us are joined for this long; a level of the tree costs this much delay.
constexpr Duration kReportDelay = 2ms;
// Then they leave at once. Answers of very many hosts do not fold, and must stay below what a link
// takes as one message.
constexpr size_t kMostReportBytes = 4_MiB;
// Up and down again, twice over, in the deepest tree.
constexpr uint32_t kMostHops = 64;

tree::Parcel* parcel_for(const RangeSet& to, tree::Envelope& envelope) {
  tree::Parcel* parcel = envelope.mutable_parcel();
  parcel->clear_to();
  for (const uint32_t end : to.pairs()) parcel->add_to(end);
  return parcel;
}

}  // namespace

void TreeLink::post(const tree::Envelope& envelope) {
  const std::string bytes = envelope.SerializeAsString();
  if (!courier->post(as_bytes(bytes))) cut(Error(Code::exhausted, "it does not take what we send"));
}

Result<void> TreeNode::take(TreeLink& link, Bytes message) {
  if (message.empty()) return {};  // a sign of life
  tree::Envelope envelope;
  if (!envelope.ParseFromArray(message.data(), static_cast<int>(message.size())))
    return fail(Code::corrupt, "a message of {} bytes does not parse", message.size());
  if (link.node == kNobody && !envelope.has_attach())
    return fail(Code::corrupt, "it spoke before it attached");
  switch (envelope.what_case()) {
    case tree::Envelope::kAttach: return on_attach(link, envelope.attach());
    case tree::Envelope::kWelcome: return on_welcome(link, envelope.welcome());
    case tree::Envelope::kRefused:
      return fail(Code::denied, "refused: {}", envelope.refused().reason());
    case tree::Envelope::kNews: return apply_news(link, envelope.news());
    case tree::Envelope::kLost: {
      TRY(const RangeSet nodes, RangeSet::from_pairs(span_of(envelope.lost().nodes())));
      if (&link == up_.get()) pass_on_lost(nodes);
      return {};
    }
    case tree::Envelope::kLeaving:
      link.back_within = Duration(envelope.leaving().back_within_ns());
      link.has_moved = envelope.leaving().moved();
      return {};
    case tree::Envelope::kAway: return on_away(link, envelope.away());
    case tree::Envelope::kParcel: {
      TRY(RangeSet to, RangeSet::from_pairs(span_of(envelope.parcel().to())));
      route_parcel(envelope, std::move(to), &link);
      return {};
    }
    case tree::Envelope::kReport: {
      const tree::Report& report = envelope.report();
      route_report(report.to(), report.key(), as_bytes(report.body()), report.hops());
      return {};
    }
    default: return {};  // of a newer version
  }
}

Result<void> TreeNode::apply_news(TreeLink& link, const tree::News& news) {
  if (link.upwards) return fail(Code::corrupt, "the node above sent news");
  TRY(const RangeSet added, RangeSet::from_pairs(span_of(news.added())));
  TRY(const RangeSet removed, RangeSet::from_pairs(span_of(news.removed())));
  if (removed.contains(link.node)) return fail(Code::corrupt, "it says that it is gone itself");
  link.alive.remove(removed);
  link.alive.add(added);
  find_again(added);
  drop_alive(removed);
  add_alive(added);
  return {};
}

void TreeNode::send(const RangeSet& to, Bytes body) {
  tree::Envelope envelope;
  envelope.mutable_parcel()->set_from(node_);
  envelope.mutable_parcel()->set_body(body.data(), body.size());
  route_parcel(envelope, to, nullptr);
}

void TreeNode::route_parcel(tree::Envelope& envelope, RangeSet to, const TreeLink* from) {
  const bool for_us = numbered() && to.contains(node_);
  if (for_us) to.remove(node_);
  for (const auto& child : children_) {
    if (to.empty()) break;
    if (child.get() == from || child->node == kNobody) continue;
    const RangeSet part = to.common(child->alive);
    if (part.empty()) continue;
    to.remove(part);
    parcel_for(part, envelope);
    child->post(envelope);
  }
  // What came from above and is not below is nowhere.
  if (!to.empty() && up_ != nullptr && from != up_.get()) {
    parcel_for(to, envelope);
    up_->post(envelope);
  }
  if (for_us) user_.on_parcel(envelope.parcel().from(), as_bytes(envelope.parcel().body()));
}

void TreeNode::report(NodeId to, uint64_t key, Bytes body) { route_report(to, key, body, 0); }

// Our own leave at once: waiting for others pays only where many come together.
void TreeNode::route_report(NodeId to, uint64_t key, Bytes body, uint32_t hops) {
  if (numbered() && to == node_) {
    user_.on_report(key, body);
    return;
  }
  if (hops > kMostHops) return;
  if (report_bytes_ + body.size() > kMostReportBytes) send_reports();
  report_bytes_ += body.size();
  TUTTI_QUEUE("tree: bytes of reports that wait for others", report_bytes_,
              std::max<uint64_t>(kMostReportBytes, body.size()));
  PendingReport& pending = reports_.change()[{to, key}];
  pending.hops = std::max(pending.hops, hops);
  pending.many = pending.many || !pending.body.empty();
  pending.body.append(as_text(body));
  const Instant due = world_.clock().now() + (hops != 0 ? kReportDelay : Duration());
  if (due >= reports_due_) return;
  reports_due_ = due;
  alarm_.ring();
}

void TreeNode::send_reports() {
  reports_due_ = kNever;
  report_bytes_ = 0;
  auto reports = std::exchange(reports_, {});
  for (auto& [target, pending] : reports.change()) {
    const auto& [to, key] = target;
    tree::Envelope envelope;
    tree::Report& report = *envelope.mutable_report();
    report.set_to(to);
    report.set_key(key);
    report.set_hops(pending.hops + 1);
    report.set_body(pending.many ? user_.fold(key, std::move(pending.body))
                                 : std::move(pending.body));
    TreeLink* next = up_.get();
    for (const auto& child : children_)
      if (child->node != kNobody && child->alive.contains(to)) next = child.get();
    if (next != nullptr) next->post(envelope);
  }
}

}  // namespace tutti
