// What the head does for clients.
#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "base/queue_mark.h"
#include "base/suggest.h"
#include "base/version.h"
#include "cluster/coordinator.h"
#include "cluster/head.h"
#include "cluster/job_file.h"
#include "cluster/job_limits.h"

namespace tutti {
namespace {

// A host that takes longer to say what it runs is left out.
constexpr Duration kQueryPatience = 2s;
// Each is a job in memory and in the log; whoever has more to do comes again.
constexpr size_t kMostQueued = 100'000;

class Bell final : public JobWatcher {
 public:
  explicit Bell(Alarm& alarm) : alarm_(alarm) {}
  void on_job_changed(uint64_t) override { alarm_.ring(); }

 private:
  Alarm& alarm_;
};

// By which ranks on several hosts know each other.
void give_fabric_key(Random& random, job::Spec& spec) {
  spec.clear_fabric_key();
  const auto several = [](const job::Role& role) { return role.count() > 1; };
  if (std::ranges::none_of(spec.roles(), several)) return;
  spec.mutable_fabric_key()->resize(kFabricKeyBytes);
  random.fill(as_mutable_bytes(*spec.mutable_fabric_key()));
}

}  // namespace

Result<uint64_t> Head::take(cluster::SubmitRequest request, std::string user) {
  if (!request.key().empty()) {
    const auto known = state_.keys.find(request.key());
    if (known != state_.keys.end()) return known->second;
  }
  TRY_DO(check_job(request.spec()));
  request.mutable_spec()->set_account(user);  // whatever it says itself
  request.mutable_spec()->set_cluster_owner(options_.owner);
  give_fabric_key(world_.random(), *request.mutable_spec());
  TRY_DO(state_.placement.could_hold(request.spec()));
  if (state_.queue.size() >= kMostQueued)
    return fail(Code::exhausted, "{} jobs wait already; submit more when some have ended",
                kMostQueued);
  auto job = std::make_unique<HeadJob>();
  const uint64_t id = state_.next_job;
  job->id = id;
  job->spec = std::move(*request.mutable_spec());
  job->user = std::move(user);
  job->spec.clear_user();
  job->spec.clear_user_group();
  job->key = request.key();
  job->submitted_ns = world_.clock().unix_ns();
  cluster::HeadRecord record;
  *record.mutable_submitted() = submitted_of(*job);
  const std::string account = job->spec.account();
  state_.add(std::move(job));
  TUTTI_QUEUE("head: jobs that wait", state_.queue.size(), kMostQueued);
  post(id, record);
  // A placement, if there is one at once, becomes durable with it. Whoever waits in front of it was
  // tried when something last changed.
  if (state_.queue.size_of(account) == 1) place_queued();
  return id;
}

Task<Result<void>> Head::durable(uint64_t posted) {
  auto durable = co_await log_->durable(posted);
  if (!durable) log_failed(durable.error());
  co_return durable;
}

Task<Result<void>> Head::end_kept(uint64_t id) {
  const HeadJob* job = state_.find(id);
  if (job == nullptr || !is_over(job->state)) co_return {};
  const uint64_t sequence = job->sequence;
  co_return co_await durable(sequence);
}

Task<Result<uint64_t>> Head::submit(cluster::SubmitRequest request, std::string user) {
  auto id = take(std::move(request), std::move(user));
  if (!id) co_return id;
  const uint64_t sequence = posted();
  auto kept = co_await durable(sequence);
  if (!kept) co_return fail(kept.error().context("keep the job"));
  co_return id;
}

void Head::watch(uint64_t job, JobWatcher& watcher) {
  if (HeadJob* found = state_.find(job)) found->watchers.push_back(&watcher);
}

void Head::unwatch(uint64_t job, JobWatcher& watcher) {
  if (HeadJob* found = state_.find(job)) std::erase(found->watchers, &watcher);
}

Task<Result<void>> Head::kill(cluster::KillRequest request, std::string user) {
  const uint64_t id = request.job();
  HeadJob* job = state_.find(id);
  if (job == nullptr) co_return no_such_job(id);
  const bool placed = job->placed;
  uint64_t sequence = job->sequence;
  if (is_over(job->state)) {
    // Somebody else was first; that too must be kept before it is said.
  } else if (placed) {
    cluster::HeadRecord record;
    cluster::EndRequest& end = *record.mutable_end();
    end.set_job(id);
    end.set_grace_ns(request.grace_ns());
    end.set_signal(request.signal());
    end.set_preempted(request.preempt());
    end.set_why(request.preempt() ? kPreempted : "killed");
    end.set_by(std::move(user));
    job->end = end;
    sequence = post(id, record);
  } else {
    job->state = cluster::KILLED_BY_USER;
    job->why = "killed before it began";
    state_.end(*job, world_.clock().unix_ns());
    sequence = post_changed(*job);
    place_queued();  // those behind it may have waited for it alone
  }
  auto kept = co_await durable(sequence);
  if (!kept) co_return fail(kept.error().context("keep that the job shall end"));
  job = state_.find(id);
  if (job == nullptr) co_return {};
  if (!placed) {
    changed(*job);
    forget_old();
  } else if (!is_over(job->state)) {
    cluster::Message message;
    *message.mutable_end_request() = *job->end;
    send(job->coordinator, message);
  }
  co_return {};
}

Task<void> Head::write_log() {
  const uint64_t sequence = log_->last_sequence();
  (void)co_await log_->durable(sequence);
}

Result<void> Head::signal(const cluster::SignalRequest& request, const std::string& user) {
  const HeadJob* job = state_.find(request.job());
  if (job == nullptr) return no_such_job(request.job());
  if (is_over(job->state))
    return fail(Code::invalid, "job {} has ended, there is nobody to send a signal to",
                request.job());
  if (request.number() <= 0 || request.number() >= NSIG)
    return fail(Code::invalid, "there is no signal {}", request.number());
  cluster::Message message;
  cluster::Signal& signal = *message.mutable_signal();
  signal.set_job(request.job());
  signal.set_number(request.number());
  signal.set_by(user);
  *signal.mutable_processes() = request.processes();
  const std::string bytes = message.SerializeAsString();
  tree_->send(nodes_of(job->layout), as_bytes(bytes));
  return {};
}

bool Head::has_ended(uint64_t job) const {
  const HeadJob* found = state_.find(job);
  return found == nullptr || is_over(found->state);
}

Result<cluster::JobInfo> Head::info(uint64_t job) const {
  const HeadJob* found = state_.find(job);
  if (found == nullptr) return no_such_job(job);
  return full_info_of(*found);
}

cluster::JobInfo Head::full_info_of(const HeadJob& job) const {
  cluster::JobInfo info = brief_info(job);
  info.set_changes(job.changes);  // of this life of ours: in no history
  add_roles(job, info);
  for (const NodeId node : nodes_of(job.layout).members()) {
    info.add_hosts(name_of(node));
    if (node < state_.hosts.size()) *info.add_members() = state_.hosts[node];
  }
  return info;
}

Task<Result<cluster::JobInfo>> Head::change_of(uint64_t id, uint64_t seen) {
  HeadJob* job = state_.find(id);
  if (job == nullptr) co_return no_such_job(id);
  Alarm alarm(world_.clock());
  Bell bell(alarm);
  watch(id, bell);
  Result<void> woken;
  while (job->changes == seen && woken) woken = co_await alarm.until(kNever);
  unwatch(id, bell);
  if (!woken) co_return fail(woken.error());
  auto kept = co_await end_kept(id);
  if (!kept) co_return fail(kept.error());
  co_return info(id);
}

std::vector<cluster::JobInfo> Head::jobs(const cluster::JobsRequest& request) const {
  std::vector<cluster::JobInfo> list;
  auto entry = state_.jobs.rbegin();
  for (; entry != state_.jobs.rend() && list.size() < request.most(); ++entry) {
    const HeadJob& job = *entry->second;
    const JobMarks marks{job.state, job.user, job.spec.name(), job.submitted_ns};
    if (fits(request, marks)) list.push_back(brief_info(job));
  }
  return list;
}

cluster::StatusReply Head::status(bool brief) const {
  cluster::StatusReply status;
  status.set_cluster(options_.tree.self.cluster);
  status.set_version(std::string(kVersion));
  status.set_address(options_.tree.address);
  status.set_up_since_unix_ns(up_since_ns_);
  status.set_hosts_alive(state_.placement.alive().size());
  status.set_hosts_known(state_.numbers.size());
  status.set_slots(state_.placement.all_slots());
  status.set_slots_taken(state_.placement.all_taken());
  for (NodeId node = 1; node < state_.hosts.size() && !brief; ++node) {
    const cluster::HostAbout& about = state_.hosts[node];
    if (about.name().empty()) continue;
    cluster::HostStatus& host = *status.add_hosts();
    host.set_node(node);
    host.set_name(about.name());
    host.set_address(about.address());
    host.set_alive(state_.placement.is_alive(node));
    if (const auto away = tree_->away_for(node); away && !host.alive())
      host.set_away_for_ns(std::max<int64_t>(1, to_ns(*away)));
    host.set_slots(about.slots());
    host.set_free(state_.placement.free(node));
    host.set_version(about.version());
  }
  for (cluster::Twin& twin : twins_.recent(world_.clock().unix_ns()))
    *status.add_twins() = std::move(twin);
  for (const auto& [id, job] : state_.jobs) {
    for (const cluster::Row& row : job->leftovers) {
      const RangeSet hosts = set_from(row.hosts()).value_or(RangeSet());
      for (cluster::HostStatus& host : *status.mutable_hosts()) {
        if (!hosts.contains(host.node())) continue;
        cluster::Leftover& leftover = *host.add_leftovers();
        leftover.set_job(id);
        leftover.set_what(row.message());
      }
    }
    if (is_over(job->state)) continue;
    if (job->placed) status.set_running_jobs(status.running_jobs() + 1);
    if (!job->placed) status.set_queued_jobs(status.queued_jobs() + 1);
  }
  return status;
}

// Nobody says that a host has nothing because it is not there, or does not answer.
void Head::add_away(uint64_t wanted, const RangeSet& silent, cluster::PsReply& reply) const {
  const RangeSet telling = state_.placement.alive().minus(silent);
  std::map<NodeId, cluster::PsReply::Away> away;
  for (const auto& [id, job] : state_.jobs) {
    if (wanted != 0 && wanted != id) continue;
    for (const NodeId node : HeadState::held_by(*job).minus(telling).members())
      away[node].add_jobs(id);
  }
  for (auto& [node, one] : away) {
    one.set_host(node);
    *reply.add_away() = std::move(one);
  }
}

Result<cluster::HostAbout> Head::host(const std::string& name) const {
  const auto known = state_.numbers.find(name);
  if (known != state_.numbers.end()) return state_.hosts[known->second];
  std::vector<std::string_view> names;
  for (const auto& [one, node] : state_.numbers) names.emplace_back(one);
  const auto meant = suggest(name, names);
  return fail(Code::not_found, "there is no host '{}'; {}", name,
              meant ? fmt::format("did you mean '{}'?", *meant)
                    : std::string("see them with `tutti status`"));
}

Task<Result<void>> Head::forget_host(std::string name) {
  CO_TRY(const cluster::HostAbout known, host(name));
  const NodeId node = known.node();
  if (is_connected(node))
    co_return fail(Code::exists,
                   "host {} is connected; end its agent with `tutti down` there first", name);
  for (const auto& [id, job] : state_.jobs)
    if (HeadState::held_by(*job).contains(node))
      co_return fail(Code::exists,
                     "host {} may still have something of job {}; it can be forgotten when that is "
                     "over or runs elsewhere",
                     name, id);
  state_.forget_host(name);
  cluster::HeadRecord record;
  record.set_host_forgotten(name);
  const uint64_t sequence = post(0, record);
  TUTTI_LOG(info, "forgot a host", {{"host", name}, {"node", node}});
  tree_->places_changed();
  place_queued();  // who waits for what it had lets others pass
  auto kept = co_await durable(sequence);
  if (!kept) co_return fail(kept.error().context("keep that the host is forgotten"));
  co_return {};
}

Task<Result<cluster::PsReply>> Head::processes(cluster::PsRequest request) {
  if (request.job() != 0 && state_.find(request.job()) == nullptr)
    co_return no_such_job(request.job());
  // Hosts without a job have nothing to say.
  RangeSet busy;
  for (const auto& [id, job] : state_.jobs)
    if (request.job() == 0 || request.job() == id) busy.add(HeadState::held_by(*job));
  const RangeSet hosts = state_.placement.alive().common(busy);
  const uint64_t key = next_query_++;
  Alarm alarm(world_.clock());
  PendingQuery& query = queries_[key];
  query.missing = hosts;
  query.waiting = &alarm;
  cluster::Message message;
  message.mutable_query()->set_key(key);
  message.mutable_query()->set_job(request.job());
  message.mutable_query()->set_usage(request.usage());
  const std::string bytes = message.SerializeAsString();
  tree_->send(hosts, as_bytes(bytes));
  const Instant patience = world_.clock().now() + kQueryPatience;
  Result<void> woken;
  while (!queries_[key].missing.empty() && woken && world_.clock().now() < patience)
    woken = co_await alarm.until(patience);
  PendingQuery done = std::move(queries_[key]);
  queries_.erase(key);
  if (!woken) co_return fail(woken.error());
  set_pairs(done.missing, done.reply.mutable_silent());
  add_away(request.job(), done.missing, done.reply);
  co_return std::move(done.reply);
}

}  // namespace tutti
