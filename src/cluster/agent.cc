#include "cluster/agent.h"

#include <algorithm>

#include "base/log.h"
#include "base/version.h"
#include "cluster/report_fold.h"
#include "cluster/twins.h"

namespace tutti {
namespace {

// Jobs whose end is remembered, so that a late directive of theirs starts nothing.
constexpr size_t kRememberedEnds = 4096;
// A message up the deepest tree and down again, many times over.
constexpr Duration kAnnouncePatience = 2s;
constexpr Duration kAnnouncePause = 5ms;
// Keys of reports that are answers to the head's questions, not of jobs.
constexpr uint64_t kQueryKeys = uint64_t{1} << 63;

cluster::Message parse(Bytes body) {
  cluster::Message message;
  if (!message.ParseFromArray(body.data(), static_cast<int>(body.size())))
    TUTTI_LOG(warn, "a message does not parse", {{"bytes", body.size()}});
  return message;
}

}  // namespace

Agent::Agent(World& world, wire::Seals& seals, std::shared_ptr<const AgentOptions> options,
             AgentPlace place)
    : world_(world),
      seals_(seals),
      options_(std::move(options)),
      beginning_(std::make_unique<Found>()),
      time_(world.clock()) {
  beginning_->place = std::move(place);
}

Agent::~Agent() = default;

// What is needed only at first does not stay in the frame of whoever runs for long.
Task<Result<void>> Agent::run() {
  auto begun = co_await begin();
  if (!begun) co_return begun;
  Scope strands;
  strands_ = &strands;
  co_await adopt_all();
  beginning_.reset();
  if (options_->started) options_->started();
  tree_->start(*listener_, strands);
  ring_time();
  auto joined = co_await strands.join();
  strands_ = nullptr;
  const Shield until_done;
  co_await let_go();
  co_return joined;
}

Task<Result<void>> Agent::begin() {
  // What a keeper that is killed leaves is then ours.
  if (auto told = world_.processes().become_subreaper(); !told)
    TUTTI_LOG(warn, "orphans of dead keepers are not found", {{"why", told.error().text()}});
  EventLogOptions log_options{.folder = options_->folder + "/log",
                              .reserve = options_->reserve_log};
  auto log = co_await EventLog::open(world_, std::move(log_options), *this);
  if (!log) co_return fail(log.error().context("open the agent's log"));
  log_ = std::move(*log);
  auto found = co_await find_keepers();
  if (!found) co_return fail(found.error().context("look for keepers of before"));
  AgentPlace& place = beginning_->place;
  auto listener = co_await world_.network().listen(std::move(place.listen));
  if (!listener) co_return fail(listener.error().context("listen for the tree"));
  listener_ = std::move(*listener);
  if (place.tree.address.empty()) place.tree.address = listener_->address().text();
  cluster::HostAbout about;
  about.set_name(place.tree.self.name);
  about.set_address(place.tree.address);
  about.set_slots(options_->slots);
  about.set_api(place.api);
  about.set_version(std::string(kVersion));
  about.set_only_for(options_->only_for);
  place.tree.about = about.SerializeAsString();
  tree_ = std::make_unique<TreeNode>(world_, seals_, std::move(place.tree), *this);
  co_return {};
}

// The keepers stay, with what they keep.
Task<void> Agent::let_go() {
  co_await tree_->finish();
  for (const auto& keeper : keepers_) {
    keeper->leave();
    (void)co_await keeper->strands().join();
  }
  (void)co_await log_->close();
}

void Agent::on_parcel(NodeId from, Bytes body) {
  const cluster::Message message = parse(body);
  switch (message.what_case()) {
    case cluster::Message::kDirective: return on_directive(from, message.directive());
    case cluster::Message::kEnd: return on_end(from, message.end());
    case cluster::Message::kAck: {
      HostJob* job = find_job(message.ack().job());
      if (job != nullptr) job->on_ack(message.ack());
      return;
    }
    case cluster::Message::kSignal: {
      auto processes = set_from(message.signal().processes());
      HostJob* job = find_job(message.signal().job());
      if (job != nullptr && processes) job->on_signal(*processes, message.signal());
      return;
    }
    case cluster::Message::kBereaved: {
      HostJob* job = find_job(message.bereaved().job());
      if (job != nullptr) job->on_bereaved(message.bereaved());
      return;
    }
    case cluster::Message::kRelease: {
      HostJob* job = find_job(message.release().job());
      if (job != nullptr) job->on_release(message.release());
      return;
    }
    case cluster::Message::kQuery: return answer_query(from, message.query());
    case cluster::Message::kVacated: return on_vacated(message);
    case cluster::Message::kAsk: {
      if (!tree_->has_child(message.ask().node(), message.ask().instance())) return;
      cluster::Message answer;
      *answer.mutable_hangs() = message.ask();
      return send_to_head(answer);
    }
    case cluster::Message::kExpel:
      return tree_->expel(message.expel().node(), message.expel().instance(), twin_error());
    case cluster::Message::kAppointment: {
      cluster::CoordinatorRecord fresh;
      *fresh.mutable_appointment() = message.appointment();
      return appoint(std::move(fresh));
    }
    default: break;
  }
  const Instant now = world_.clock().now();
  uint64_t job = 0;
  if (message.has_end_request()) job = message.end_request().job();
  if (message.has_update_ack()) job = message.update_ack().job();
  if (message.has_grant()) job = message.grant().job();
  if (message.has_forget()) job = message.forget().job();
  Hosted* hosted = coordinating(job);
  if (hosted == nullptr) return;
  Coordinator& coordinator = hosted->coordinator;
  if (message.has_end_request()) coordinator.on_end_request(message.end_request(), now);
  if (message.has_update_ack()) coordinator.on_update_ack(message.update_ack().sequence());
  if (message.has_grant()) coordinator.on_grant(message.grant(), now);
  if (message.has_forget() && message.forget().term() > coordinator.appointment().term())
    return forget_coordinator(job);
  carry_out(*hosted);
}

void Agent::on_directive(NodeId from, const cluster::Directive& directive) {
  const auto ended = ended_.find(directive.job());
  if (ended != ended_.end() && directive.epoch() <= ended->second) {
    // It was told to end here after this was sent.
    cluster::End end;
    end.set_job(directive.job());
    return on_end(from, end);
  }
  HostJob* job = find_job(directive.job());
  if (job == nullptr) job = &add_job(directive.job());
  job->on_directive(directive);
}

void Agent::on_vacated(const cluster::Message& message) {
  const cluster::Vacated& asked = message.vacated();
  const HostJob* job = find_job(asked.job());
  const auto but = set_from(asked.but());
  if (job != nullptr && !(but && job->has_only(*but, asked.epoch()))) return;
  // A directive of before may still be on its way.
  if (asked.epoch() != 0) remember_end(asked.job(), asked.epoch() - 1);
  send_to_head(message);
}

void Agent::remember_end(uint64_t job, uint64_t epoch) {
  ended_[job] = std::max(ended_[job], epoch);
  if (ended_.size() > kRememberedEnds) ended_.erase(ended_.begin());
}

void Agent::on_end(NodeId from, const cluster::End& end) {
  if (end.epoch() != 0) {
    remember_end(end.job(), end.epoch());
    for (Alarm* watcher : job_watchers_) watcher->ring();
  }
  if (HostJob* job = find_job(end.job())) {
    if (end.epoch() != 0) job->on_end(end);
    return;
  }
  cluster::JobReport gone;
  gone.set_job(end.job());
  cluster::Row& row = *gone.add_rows();
  row.set_what(cluster::Row::ENDED);
  set_pairs(RangeSet(node()), row.mutable_hosts());
  report(from, gone);
}

void Agent::on_report(uint64_t key, Bytes body) {
  if ((key & kQueryKeys) != 0) return;
  cluster::JobReport report;
  if (!report.ParseFromArray(body.data(), static_cast<int>(body.size()))) return;
  Hosted* hosted = coordinating(report.job());
  if (hosted == nullptr) {
    // Whose coordinator we are not. The head knows who is, or that it is over.
    if (std::ranges::all_of(report.rows(), says_ended)) return;
    report.set_refused_by(node());
    report_to_head(report);
    return;
  }
  hosted->coordinator.on_report(report, world_.clock().now());
  carry_out(*hosted);
}

std::string Agent::fold(uint64_t key, std::string bodies) {
  if ((key & kQueryKeys) != 0) return bodies;
  // One message after the other is one message with the rows of all.
  cluster::JobReport report;
  if (!report.ParseFromString(bodies)) return bodies;
  fold_rows(report);
  return report.SerializeAsString();
}

void Agent::on_lost(const RangeSet& nodes) {
  const Instant now = world_.clock().now();
  std::vector<uint64_t> touched;
  for (const auto& [job, hosted] : coordinators_)
    if (hosted->coordinator.nodes().meets(nodes)) touched.push_back(job);
  for (const uint64_t job : touched) {
    Hosted* hosted = coordinating(job);
    if (hosted == nullptr) continue;
    hosted->coordinator.on_lost(nodes, now);
    carry_out(*hosted);
  }
}

void Agent::on_away(const RangeSet&, bool) {
  const RangeSet away = tree_->away();
  for (const auto& [job, hosted] : coordinators_) hosted->coordinator.set_away(away);
}

Task<void> Agent::announce_leave() {
  const Instant patience = world_.clock().now() + kAnnouncePatience;
  tree_->leave_for(kLongestAway);
  while (!tree_->away_for(node()) && world_.clock().now() < patience)
    if (!co_await world_.clock().sleep(kAnnouncePause)) co_return;
  TUTTI_LOG(info, "leaves for a while", {{"announced", tree_->away_for(node()).has_value()}});
}

// Jobs that are found again are of the host that had this number.
void Agent::remember_node() {
  if (node() == std::exchange(logged_node_, node())) return;
  cluster::AgentRecord record;
  record.set_node(node());
  const std::string bytes = record.SerializeAsString();
  log_->post(bytes);
}

void Agent::on_attached() {
  if (options_->announce) {
    remember_node();
    cluster::Message message;
    cluster::HostAbout& about = *message.mutable_about();
    about.ParseFromString(tree_->about());
    about.set_node(node());
    about.set_instance(tree_->instance());
    send_to_head(message);
  }
  // What was said meanwhile may have been lost.
  for (const auto& [id, job] : jobs_) job->report_again();
  for (const auto& [id, hosted] : coordinators_) {
    hosted->coordinator.tell_head(world_.clock().now());
    carry_out(*hosted);
  }
}

void Agent::send_to_head(const cluster::Message& message) {
  const std::string bytes = message.SerializeAsString();
  tree_->send(RangeSet(kHead), as_bytes(bytes));
}

cluster::Hanging Agent::hanging(const Child& child) const {
  cluster::Hanging hanging;
  hanging.set_node(child.node);
  hanging.set_instance(child.instance);
  hanging.set_above(node());
  hanging.set_name(child.name);
  hanging.set_about(child.about);
  return hanging;
}

// The head knows hosts by their names, and sees whether two have one.
void Agent::on_child(const Child& child) {
  if (!options_->announce) return;
  cluster::Message message;
  *message.mutable_hanging() = hanging(child);
  send_to_head(message);
}

void Agent::on_twin(const Child& child) {
  cluster::Message message;
  *message.mutable_refused() = hanging(child);
  send_to_head(message);
}

Result<NodeId> Agent::admit(const tree::Attach& attach, const wire::Peer& peer) {
  if (attach.node() == kHead)
    return fail(Code::invalid, "agent {} has no number yet; the head gives them, join there",
                peer.identity.name);
  return attach.node();
}

std::string Agent::address_of(NodeId node) {
  return options_->address_of ? options_->address_of(node) : std::string();
}

cluster::HostInfos Agent::processes(uint64_t wanted, bool usage) {
  std::vector<cluster::ProcessInfo> processes;
  cluster::HostInfos infos;
  cluster::HostInfo& info = *infos.add_hosts();
  for (const auto& [id, job] : jobs_) {
    if (wanted != 0 && wanted != id) continue;
    job->describe(processes);
    if (job->left_behind().empty()) continue;
    cluster::Leftover& leftover = *info.add_leftovers();
    leftover.set_job(id);
    leftover.set_what(job->left_behind());
  }
  info.set_host(node());
  if (usage) {
    std::vector<pid_t> pids;
    for (const cluster::ProcessInfo& process : processes)
      if (process.pid() != 0) pids.push_back(static_cast<pid_t>(process.pid()));
    const std::map<pid_t, Usage> used = world_.processes().usage_of(pids);
    info.set_sampled_ns(to_ns(world_.clock().now()));
    for (cluster::ProcessInfo& process : processes) {
      const auto found = used.find(static_cast<pid_t>(process.pid()));
      // An exited process's number may be another's by now.
      if (found == used.end() || process.state() != "running") continue;
      process.set_cpu_ns(to_ns(found->second.processor));
      process.set_memory_bytes(found->second.memory_bytes);
      process.set_age_ns(to_ns(found->second.age));
    }
  }
  for (cluster::ProcessInfo& process : processes) *info.add_processes() = std::move(process);
  return infos;
}

void Agent::answer_query(NodeId from, const cluster::Query& query) {
  const cluster::HostInfos infos = processes(query.job(), query.usage());
  const std::string bytes = infos.SerializeAsString();
  tree_->report(from, query.key() | kQueryKeys, as_bytes(bytes));
}

}  // namespace tutti
