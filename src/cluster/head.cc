#include "cluster/head.h"

#include "base/log.h"
#include "cluster/report_fold.h"

namespace tutti {
namespace {

constexpr uint64_t kQueryKeys = uint64_t{1} << 63;
// One number each, and a row in every table.
constexpr NodeId kMostHosts = 10'000'000;
// Who is refused comes again, and must not fill the log.
constexpr Duration kTwinInterval = 10s;
constexpr int kTwinBurst = 10;

}  // namespace

Head::Head(World& world, wire::Seals& seals, HeadOptions options)
    : world_(world), seals_(seals), options_(std::move(options)), time_(world.clock()) {}

Head::~Head() = default;

Task<Result<void>> Head::run() {
  up_since_ns_ = world_.clock().unix_ns();
  for (NodeId node = 1; node <= options_.roster; ++node)
    state_.placement.set_host(node, options_.roster_slots);
  snapshot_at_ = options_.log_bytes;
  if (options_.index != nullptr)
    feed_ = std::make_unique<IndexFeed>(world_, state_, *options_.index);
  EventLogOptions log_options{.folder = options_.folder + "/log", .reserve = options_.reserve_log};
  auto log = co_await EventLog::open(world_, std::move(log_options), *this);
  if (!log) co_return fail(log.error().context("open the head's log"));
  log_ = std::move(*log);
  const JobQueue all = std::exchange(state_.queue, {});
  for (const uint64_t id : all.all()) {
    const HeadJob* job = state_.find(id);
    if (job != nullptr && job->state == cluster::QUEUED) state_.queue.push(id, job->spec.account());
  }
  Address address = options_.listen;
  auto listener = co_await world_.network().listen(std::move(address));
  if (!listener) co_return fail(listener.error().context("listen for agents"));
  if (options_.tree.address.empty()) options_.tree.address = (*listener)->address().text();
  tree_ = std::make_unique<TreeNode>(world_, seals_, options_.tree, *this);
  Scope strands;
  strands_ = &strands;
  strands.spawn(tree_->run(**listener));
  strands.spawn(keep_time());
  if (feed_) strands.spawn(feed_->run(*log_));
  snapshot_if_large();
  if (options_.started) options_.started();
  auto joined = co_await strands.join();
  strands_ = nullptr;
  const Shield until_done;
  (void)co_await log_->close();
  co_return joined;
}

void Head::on_parcel(NodeId from, Bytes body) {
  cluster::Message message;
  if (!message.ParseFromArray(body.data(), static_cast<int>(body.size()))) return;
  if (message.has_update()) on_update(from, message.update());
  if (message.has_vacated()) on_vacated(from, message.vacated());
  // What a twin says of itself is not of the host.
  if (message.has_about() && !twins_.is_another(message.about().node(), message.about().instance()))
    learn(message.about());
  if (message.has_hanging()) on_hanging(message.hanging());
  if (message.has_refused()) note_twin(message.refused());
  if (message.has_hangs()) on_hangs(message.hangs());
}

void Head::on_report(uint64_t key, Bytes body) {
  if ((key & kQueryKeys) != 0) {
    const auto found = queries_.find(key & ~kQueryKeys);
    cluster::HostInfos infos;
    if (found == queries_.end() ||
        !infos.ParseFromArray(body.data(), static_cast<int>(body.size())))
      return;
    PendingQuery& query = found->second;
    for (cluster::HostInfo& info : *infos.mutable_hosts()) {
      query.missing.remove(info.host());
      *query.reply.add_hosts() = std::move(info);
    }
    if (query.missing.empty() && query.waiting != nullptr) query.waiting->ring();
    return;
  }
  // A host does not know who coordinates its job, or that it is over.
  cluster::JobReport report;
  if (!report.ParseFromArray(body.data(), static_cast<int>(body.size()))) return;
  HeadJob* job = state_.find(report.job());
  if (job == nullptr || job->state >= cluster::SUCCEEDED) {
    on_leftovers(job, report);
    cluster::Message message;
    message.mutable_end()->set_job(report.job());
    message.mutable_end()->set_epoch(~uint64_t{0});
    RangeSet hosts;
    for (const cluster::Row& row : report.rows())
      if (!says_ended(row)) hosts.add(set_from(row.hosts()).value_or(RangeSet()));
    const std::string bytes = message.SerializeAsString();
    tree_->send(hosts, as_bytes(bytes));
    return;
  }
  if (!job->placed) return;
  if (report.refused_by() != 0 && report.refused_by() == job->coordinator && job->heard) {
    // It has lost its memory of the job, which another start of it would not have.
    appoint(*job, job->coordinator, false);
  } else if (report.refused_by() != job->coordinator) {
    report.clear_refused_by();
    const std::string bytes = report.SerializeAsString();
    tree_->report(job->coordinator, report.job(), as_bytes(bytes));
  }
}

void Head::on_lost(const RangeSet&) {}

// What runs there keeps its slots, and nothing new comes there until they are back.
void Head::on_away(const RangeSet& nodes, bool away) {
  TUTTI_LOG(info, away ? "agents are away for a while" : "agents are away no more",
            {{"hosts", nodes.text()}});
  RangeSet here = nodes.common(tree_->alive());
  here.remove(kHead);
  for (const NodeId node : here.members()) state_.placement.set_alive(node, !away);
  if (away || here.empty()) return;
  if (ask_given_up()) time_.ring();
  hosts_came();
}

void Head::on_alive(const RangeSet& added, const RangeSet& removed) {
  for (const NodeId node : removed.members()) {
    back_.erase(node);
    if (node != kHead) state_.placement.set_alive(node, false);
  }
  for (const NodeId node : added.members())
    if (node != kHead) state_.placement.set_alive(node, true);
  if (!removed.empty()) {
    TUTTI_LOG(info, "lost hosts", {{"hosts", removed.text()}});
    find_coordinators();
  }
  if (added.empty()) return;
  if (ask_given_up()) time_.ring();
  hosts_came();
}

void Head::hosts_came() {
  state_.queue.call_back();
  place_queued();
  for (const auto& [id, job] : state_.jobs)
    if (job->placed && !job->wanted.empty()) grant(*job);
}

Result<NodeId> Head::number_for(const cluster::HostAbout& about) {
  const auto known = state_.numbers.find(about.name());
  if (known != state_.numbers.end()) return known->second;
  const auto next = static_cast<NodeId>(std::max<size_t>(state_.hosts.size(), options_.roster + 1));
  if (next > kMostHosts) return fail(Code::exhausted, "there are {} hosts already", kMostHosts);
  return std::max<NodeId>(next, 1);
}

void Head::learn(cluster::HostAbout about) {
  if (about.node() == kHead || about.node() > kMostHosts) return;
  about.clear_instance();
  const cluster::HostAbout known =
      about.node() < state_.hosts.size() ? state_.hosts[about.node()] : cluster::HostAbout();
  if (known.SerializeAsString() == about.SerializeAsString()) return;
  state_.know_host(about);
  cluster::HeadRecord record;
  *record.mutable_host()->mutable_about() = about;
  post(0, record);
  strands_->spawn(write_log());
  if (known.address() != about.address()) tree_->places_changed();
  state_.queue.call_back();
  place_queued();
}

// Nothing is placed on one that is about to leave for a while, but it is there until then.
bool Head::is_connected(NodeId node) const {
  return state_.placement.is_alive(node) || tree_->alive().contains(node);
}

Result<NodeId> Head::admit(const tree::Attach& attach, const wire::Peer& peer) {
  cluster::HostAbout about;
  about.ParseFromString(attach.about());
  if (attach.node() != kHead) {
    // A number that was given to another name is not theirs.
    const bool given =
        attach.node() < state_.hosts.size() && !state_.hosts[attach.node()].name().empty();
    if (given && state_.hosts[attach.node()].name() != peer.identity.name)
      return fail(Code::denied, "node {} is {}, not {}", attach.node(),
                  state_.hosts[attach.node()].name(), peer.identity.name);
    return attach.node();
  }
  if (about.name() != peer.identity.name)
    return fail(Code::denied, "{} calls itself {}", peer.identity.name, about.name());
  TRY(const NodeId node, number_for(about));
  if (is_connected(node)) {
    cluster::Hanging refused;
    refused.set_node(node);
    refused.set_name(about.name());
    note_twin(refused);
    return fail(Code::exists,
                "there is an agent {} in this cluster already, as node {}; stop it, or start this "
                "one with another --name",
                about.name(), node);
  }
  about.set_node(node);
  learn(about);
  return node;
}

void Head::on_child(const Child& child) {
  cluster::Hanging hanging;
  hanging.set_node(child.node);
  hanging.set_instance(child.instance);
  hanging.set_above(kHead);
  hanging.set_name(child.name);
  hanging.set_about(child.about);
  on_hanging(hanging);
}

void Head::on_twin(const Child& child) {
  cluster::Hanging refused;
  refused.set_node(child.node);
  refused.set_instance(child.instance);
  refused.set_name(child.name);
  note_twin(refused);
}

// Agents below the head's children are admitted by those, who know no names.
void Head::on_hanging(const cluster::Hanging& hanging) {
  const NodeId node = hanging.node();
  const bool named = node < state_.hosts.size() && !state_.hosts[node].name().empty();
  if (named && state_.hosts[node].name() != hanging.name()) return expel(hanging);
  const auto before = twins_.came(hanging);
  if (!before) return;
  if (before->above() == kHead) {
    if (tree_->has_child(node, before->instance())) on_hangs(*before);
    return;
  }
  cluster::Message message;
  *message.mutable_ask() = *before;
  send(before->above(), message);
}

void Head::on_hangs(const cluster::Hanging& older) {
  const auto newer = twins_.is_there(older);
  if (!newer) return;
  expel(*newer);
  // It may have said where it is.
  cluster::HostAbout about;
  if (!about.ParseFromString(older.about()) || about.name() != older.name()) return;
  about.set_node(older.node());
  learn(std::move(about));
}

void Head::expel(const cluster::Hanging& hanging) {
  note_twin(hanging);
  if (hanging.above() == kHead)
    return tree_->expel(hanging.node(), hanging.instance(), twin_error());
  cluster::Message message;
  *message.mutable_expel() = hanging;
  send(hanging.above(), message);
}

void Head::note_twin(const cluster::Hanging& refused) {
  twins_.note(refused.name(), world_.clock().unix_ns());
  if (tell_twins_ == nullptr) tell_twins_ = std::make_unique<LogLimit>(kTwinInterval, kTwinBurst);
  if (tell_twins_->allow(world_.clock().now()))
    TUTTI_LOG(warn, "two agents have one name, and the newer is refused",
              {{"name", refused.name()},
               {"node", refused.node()},
               {"below", refused.above()},
               {"more_like_it", tell_twins_->take_suppressed()}});
}

std::string Head::address_of(NodeId node) {
  if (node < state_.hosts.size() && !state_.hosts[node].address().empty())
    return state_.hosts[node].address();
  return options_.address_of ? options_.address_of(node) : std::string();
}

std::string Head::place_of(NodeId node) const {
  if (node >= state_.hosts.size()) return name_of(node);
  auto address = Address::parse(state_.hosts[node].address());
  return address ? address->host : name_of(node);
}

std::string Head::name_of(NodeId node) const {
  if (node < state_.hosts.size() && !state_.hosts[node].name().empty())
    return state_.hosts[node].name();
  return options_.address_of ? Address::parse(options_.address_of(node))->host
                             : fmt::format("node{}", node);
}

}  // namespace tutti
