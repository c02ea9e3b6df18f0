// What the head does for clients.
#include <algorithm>
#include <csignal>

#include "base/version.h"
#include "cluster/head.h"
#include "cluster/job_file.h"

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

bool is_over(cluster::JobState state) { return state >= cluster::SUCCEEDED; }

std::unexpected<Error> no_such_job(uint64_t job) {
  return fail(Code::not_found, "there is no job {}; see `tutti jobs --all`", job);
}

}  // namespace

Result<uint64_t> Head::take(cluster::SubmitRequest request, std::string user) {
  if (!request.key().empty()) {
    const auto known = keys_.find(request.key());
    if (known != keys_.end()) return known->second;
  }
  TRY_DO(check_job(request.spec()));
  TRY_DO(placement_.could_hold(request.spec()));
  if (queue_.size() >= kMostQueued)
    return fail(Code::exhausted, "{} jobs wait already; submit more when some have ended",
                kMostQueued);
  auto made = std::make_unique<Job>();
  Job& job = *made;
  job.id = next_job_++;
  job.spec = std::move(*request.mutable_spec());
  job.user = std::move(user);
  job.spec.set_account(job.user);  // whatever it says itself
  job.spec.clear_user();
  job.spec.clear_user_group();
  job.key = request.key();
  job.submitted_ns = world_.clock().unix_ns();
  cluster::HeadRecord record;
  cluster::JobSubmitted& submitted = *record.mutable_submitted();
  submitted.set_job(job.id);
  *submitted.mutable_spec() = job.spec;
  submitted.set_user(job.user);
  submitted.set_at_unix_ns(job.submitted_ns);
  submitted.set_key(job.key);
  if (!job.key.empty()) keys_[job.key] = job.id;
  const uint64_t id = job.id;
  post(record);
  jobs_.emplace(id, std::move(made));
  queue_.push_back(id);
  // A placement, if there is one at once, becomes durable with it. Whoever waits in front of it was
  // tried when something last changed.
  if (queue_.size() == 1) place_queued();
  return id;
}

Task<Result<void>> Head::durable(uint64_t posted) {
  auto durable = co_await log_->durable(posted);
  if (!durable) log_failed(durable.error());
  co_return durable;
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
  if (Job* found = find(job)) found->watchers.push_back(&watcher);
}

void Head::unwatch(uint64_t job, JobWatcher& watcher) {
  if (Job* found = find(job)) std::erase(found->watchers, &watcher);
}

Result<void> Head::kill(const cluster::KillRequest& request) {
  Job* job = find(request.job());
  if (job == nullptr) return no_such_job(request.job());
  if (is_over(job->state)) return {};
  if (!job->placed) {
    job->state = cluster::KILLED_BY_USER;
    job->why = "killed before it began";
    const uint64_t sequence = post(changed_record(*job));
    job->ended_ns = world_.clock().unix_ns();
    over_.push_back(job->id);
    strands_->spawn(change_durably(job->id, sequence));
    place_queued();  // those behind it may have waited for it alone
    return {};
  }
  cluster::Message message;
  cluster::EndRequest& end = *message.mutable_end_request();
  end.set_job(request.job());
  end.set_grace_ns(request.grace_ns());
  end.set_signal(request.signal());
  end.set_preempted(request.preempt());
  end.set_why(request.preempt() ? "preempted" : "killed");
  job->end = end;
  send(job->coordinator, message);
  return {};
}

Task<void> Head::write_log() {
  const uint64_t sequence = log_->last_sequence();
  (void)co_await log_->durable(sequence);
}

Result<void> Head::signal(const cluster::SignalRequest& request) {
  const Job* job = find(request.job());
  if (job == nullptr) return no_such_job(request.job());
  if (request.number() <= 0 || request.number() >= NSIG)
    return fail(Code::invalid, "there is no signal {}", request.number());
  cluster::Message message;
  cluster::Signal& signal = *message.mutable_signal();
  signal.set_job(request.job());
  signal.set_number(request.number());
  *signal.mutable_processes() = request.processes();
  const std::string bytes = message.SerializeAsString();
  tree_->send(nodes_of(job->layout), as_bytes(bytes));
  return {};
}

cluster::JobInfo Head::info_of(const Job& job) const {
  cluster::JobInfo info;
  info.set_job(job.id);
  info.set_name(job.spec.name());
  info.set_user(job.user);
  info.set_state(job.state);
  info.set_why(job.why);
  info.set_submitted_unix_ns(job.submitted_ns);
  info.set_started_unix_ns(job.started_ns);
  info.set_ended_unix_ns(job.ended_ns);
  info.set_epoch(job.epoch);
  info.set_restarts(job.restarts);
  info.set_processes(JobNumbers(job.spec).size());
  *info.mutable_layout() = job.layout;
  if (job.culprit.has_exit()) *info.mutable_culprit() = job.culprit;
  *info.mutable_leftovers() = job.leftovers;
  info.set_coordinator(job.coordinator);
  return info;
}

bool Head::has_ended(uint64_t job) const {
  const Job* found = find(job);
  return found == nullptr || is_over(found->state);
}

Result<cluster::JobInfo> Head::info(uint64_t job) const {
  const Job* found = find(job);
  if (found == nullptr) return no_such_job(job);
  return full_info_of(*found);
}

cluster::JobInfo Head::full_info_of(const Job& job) const {
  cluster::JobInfo info = info_of(job);
  const JobNumbers numbers(job.spec);
  for (size_t index = 0; index < numbers.roles(); ++index) {
    const job::Role& role = job.spec.roles(static_cast<int>(index));
    cluster::RoleInfo& told = *info.add_roles();
    told.set_name(role.name());
    told.set_kind(role.kind());
    told.set_count(numbers.count(index));
    told.set_place(static_cast<uint32_t>(numbers.place_role(index)));
  }
  for (const NodeId node : nodes_of(job.layout).members()) {
    info.add_hosts(name_of(node));
    if (node < hosts_.size()) *info.add_members() = hosts_[node].about;
  }
  return info;
}

Task<Result<cluster::JobInfo>> Head::change_of(uint64_t id, cluster::JobState seen) {
  Job* job = find(id);
  if (job == nullptr) co_return no_such_job(id);
  Alarm alarm(world_.clock());
  Bell bell(alarm);
  watch(id, bell);
  Result<void> woken;
  while (job->state == seen && woken) woken = co_await alarm.until(kNever);
  unwatch(id, bell);
  job = find(id);
  if (!woken) co_return fail(woken.error());
  if (job == nullptr) co_return no_such_job(id);
  co_return full_info_of(*job);
}

std::vector<cluster::JobInfo> Head::jobs(bool all, size_t most) const {
  std::vector<cluster::JobInfo> list;
  for (auto entry = jobs_.rbegin(); entry != jobs_.rend() && list.size() < most; ++entry)
    if (all || !is_over(entry->second->state)) list.push_back(info_of(*entry->second));
  return list;
}

cluster::StatusReply Head::status(bool brief) const {
  cluster::StatusReply status;
  status.set_cluster(options_.tree.self.cluster);
  status.set_version(std::string(kVersion));
  status.set_address(options_.tree.address);
  status.set_up_since_unix_ns(up_since_ns_);
  status.set_hosts_alive(placement_.alive().size());
  status.set_hosts_known(numbers_.size());
  status.set_slots(placement_.all_slots());
  status.set_slots_taken(placement_.all_taken());
  for (NodeId node = 1; node < hosts_.size() && !brief; ++node) {
    const cluster::HostAbout& about = hosts_[node].about;
    if (about.name().empty()) continue;
    cluster::HostStatus& host = *status.add_hosts();
    host.set_node(node);
    host.set_name(about.name());
    host.set_address(about.address());
    host.set_alive(placement_.is_alive(node));
    host.set_slots(about.slots());
    host.set_free(placement_.free(node));
    host.set_version(about.version());
  }
  for (const auto& [id, job] : jobs_) {
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

Task<Result<cluster::PsReply>> Head::processes(cluster::PsRequest request) {
  RangeSet hosts = placement_.alive();
  if (request.job() != 0) {
    const Job* job = find(request.job());
    if (job == nullptr) co_return no_such_job(request.job());
    hosts = nodes_of(job->layout).common(hosts);
  } else {
    // Hosts without a job have nothing to say.
    RangeSet busy;
    for (const auto& [id, job] : jobs_) busy.add(held_by(*job));
    hosts = hosts.common(busy);
  }
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
  co_return std::move(done.reply);
}

}  // namespace tutti
