// The jobs on an agent's host, and the keepers they have.
#include <algorithm>
#include <charconv>
#include <csignal>

#include "base/hash.h"
#include "base/log.h"
#include "cluster/agent.h"
#include "cluster/end_descendants.h"

namespace tutti {
namespace {

// Of keepers between two jobs; more are told to leave.
constexpr size_t kMostIdleKeepers = 64;
constexpr Duration kKeeperPatience = 5s;
constexpr Duration kOrphanPause = 5ms;
// Between tries to end what could not be ended.
constexpr Duration kLeftoverPause = 5s;
// Of jobs that ended: those whose processes' ends are remembered, for who follows and comes late,
// and those whose output is kept on disk.
constexpr size_t kPastJobs = 32;
constexpr size_t kKeptOutputs = 256;
// The log's size at which it is replaced by a snapshot of what is there.
constexpr uint64_t kLogBytes = 64_MiB;

// Known to whoever knows the keeper's socket, also when the keeper is dead.
std::string group_of_keeper(const std::string& path) {
  return fmt::format("keeper-{:016x}", hash64(as_bytes(path)));
}

}  // namespace

// Others cannot look into our folder, and need not: the name is known to the kernel alone, and it
// says who connects.
std::string Agent::address() const {
  const auto parsed = Address::parse(tree_->address());
  return parsed ? parsed->host : std::string();
}

std::string Agent::exchange_socket(bool of_others) const {
  return of_others ? fmt::format("@{}/exchange", options_->folder)
                   : options_->folder + "/exchange.sock";
}

Result<std::optional<RunAs>> Agent::run_as(const std::string& user) {
  if (!options_->run_as) return std::nullopt;
  auto who = options_->run_as(user);
  if (who && *who && !exchange_server_->serves_others()) {
    exchange_server_->serve_others();
    strands_->spawn(exchange_server_->serve(exchange_socket(true)));
  }
  return who;
}

HostJob* Agent::find_job(uint64_t job) {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : found->second.get();
}

HostJob& Agent::add_job(uint64_t job) {
  auto made = std::make_unique<HostJob>(*this, job);
  HostJob& added = *made;
  if (exchange_server_ == nullptr) {
    exchange_server_ = std::make_unique<ExchangeServer>(
        world_, *strands_, [this](uint64_t id) { return find_job(id); });
    strands_->spawn(exchange_server_->serve(exchange_socket(false)));
  }
  jobs_.emplace(job, std::move(made));
  strands_->spawn(run_job(added));
  for (Alarm* watcher : job_watchers_) watcher->ring();
  return added;
}

Task<void> Agent::run_job(HostJob& job) {
  co_await job.run();
  if (!job.over()) co_return;
  // What came back and left again is found whole by the last who had it.
  std::erase_if(past_, [&](const auto& entry) { return entry.first == job.job(); });
  past_.emplace_back(job.job(), job.output());
  if (past_.size() > kPastJobs) past_.erase(past_.begin());
  const bool left_files = job.output()->used() || (job.looks() && job.looks()->used());
  jobs_.erase(job.job());
  if (left_files) co_await remove_old_output();
}

std::shared_ptr<OutputSpool> Agent::output_of(uint64_t job) const {
  const auto here = jobs_.find(job);
  if (here != jobs_.end()) return here->second->output();
  const auto past = std::ranges::find(past_, job, [](const auto& entry) { return entry.first; });
  return past == past_.end() ? nullptr : past->second;
}

Task<void> Agent::remove_old_output() {
  const std::string folder = options_->folder + "/jobs";
  auto names = co_await world_.disk().list(folder);
  if (!names || names->size() <= kKeptOutputs) co_return;
  std::vector<uint64_t> ended;
  for (const std::string& name : *names) {
    uint64_t job = 0;
    std::from_chars(name.data(), name.data() + name.size(), job);
    if (job != 0 && !jobs_.contains(job)) ended.push_back(job);
  }
  std::ranges::sort(ended);
  const size_t extra = names->size() - kKeptOutputs;
  ended.resize(std::min(ended.size(), extra));
  for (const uint64_t job : ended) {
    const std::string old = job_folder(job);
    auto files = co_await world_.disk().list(old);
    const std::vector<std::string> left = files.value_or(std::vector<std::string>());
    for (const std::string& file : left) {
      std::string path = fmt::format("{}/{}", old, file);
      (void)co_await world_.disk().remove(std::move(path));
    }
    (void)co_await world_.disk().remove(old);
  }
}

void Agent::report(NodeId coordinator, const cluster::JobReport& report) {
  const std::string bytes = report.SerializeAsString();
  tree_->report(coordinator, report.job(), as_bytes(bytes));
}

void Agent::report_to_head(const cluster::JobReport& report) {
  const std::string bytes = report.SerializeAsString();
  tree_->report(kHead, report.job(), as_bytes(bytes));
}

std::string Agent::job_folder(uint64_t job) const {
  return fmt::format("{}/jobs/{}", options_->folder, job);
}

Task<Result<void>> Agent::log(const cluster::HostRecord& record) {
  cluster::AgentRecord kept;
  *kept.mutable_host() = record;
  return append_to_log(kept.SerializeAsString());
}

Task<Result<void>> Agent::append_to_log(const std::string& bytes) {
  if (bytes.size() > kMaxEventBytes) return too_long_for_log(bytes.size());
  return appended(log_->post(bytes));
}

Task<Result<void>> Agent::too_long_for_log(size_t bytes) {
  const Error why(Code::invalid,
                  fmt::format("a record of {} bytes, and {} are allowed", bytes, kMaxEventBytes));
  log_failed(why);
  co_return fail(why);
}

Task<Result<void>> Agent::appended(uint64_t sequence) {
  auto durable = co_await log_->durable(sequence);
  if (!durable) {
    log_failed(durable.error());
    co_return durable;
  }
  if (log_->bytes_since_snapshot() > kLogBytes && !std::exchange(snapshotting_, true))
    strands_->spawn(snapshot_when_large());
  co_return {};
}

void Agent::log_soon(const cluster::HostRecord& record) {
  cluster::AgentRecord kept;
  *kept.mutable_host() = record;
  const std::string bytes = kept.SerializeAsString();
  log_->post(bytes);
  ring_time();
}

uint64_t Agent::log_exchange(const cluster::ExchangeRecord& record) {
  cluster::AgentRecord kept;
  *kept.mutable_exchange() = record;
  const std::string bytes = kept.SerializeAsString();
  const uint64_t sequence = log_->post(bytes);
  ring_time();
  return sequence;
}

Task<Result<void>> Agent::logged(uint64_t sequence) {
  auto durable = co_await log_->durable(sequence);
  if (!durable) log_failed(durable.error());
  co_return durable;
}

Task<void> Agent::snapshot_when_large() {
  cluster::AgentSnapshot snapshot;
  snapshot.add_records()->set_node(logged_node_);
  for (const auto& [id, job] : jobs_)
    if (job->epoch() != 0) *snapshot.add_records()->mutable_host() = job->record();
  for (const auto& [id, job] : jobs_)
    for (cluster::ExchangeRecord& record : job->exchange_records())
      *snapshot.add_records()->mutable_exchange() = std::move(record);
  for (const auto& [id, hosted] : coordinators_) *snapshot.add_records() = record_of(*hosted);
  const uint64_t sequence = log_->last_sequence();
  std::string state = snapshot.SerializeAsString();
  auto taken = co_await log_->snapshot(sequence, std::move(state));
  if (!taken) TUTTI_LOG(warn, "no snapshot of the agent's log", {{"why", taken.error().text()}});
  snapshotting_ = false;
}

Result<KeeperSession*> Agent::start_keeper_here() {
  const uint64_t name = world_.random().next();
  StartKeeperOptions options = options_->keeper;
  const std::string path = fmt::format("{}/keepers/{:08x}", options_->folder, name >> 32);
  if (options_->keepers_linger) options.linger = path;
  if (options_->use_groups) options.group = group_of_keeper(path);
  TRY(StartedKeeper started, start_keeper(world_, options));
  keepers_.push_back(std::make_unique<KeeperSession>(world_, std::move(started.stream),
                                                     std::move(started.process), path));
  keepers_.back()->start([this] { ring_time(); }, options.speak);
  return keepers_.back().get();
}

Task<Result<KeeperSession*>> Agent::take_keeper() {
  while (!idle_keepers_.empty()) {
    KeeperSession* keeper = idle_keepers_.back();
    idle_keepers_.pop_back();
    if (keeper->gone()) continue;
    keep_warm();
    co_return keeper;
  }
  auto made = co_await world_.disk().make_directories(options_->folder + "/keepers");
  if (!made) co_return fail(std::move(made).error());
  co_return start_keeper_here();
}

// The next job shall not wait for a keeper to begin.
void Agent::keep_warm() {
  while (idle_keepers_.size() < options_->warm_keepers) {
    auto started = start_keeper_here();
    if (!started) return;
    idle_keepers_.push_back(*started);
  }
}

void Agent::give_keeper_back(KeeperSession& keeper) {
  if (keeper.is_reusable() && idle_keepers_.size() < kMostIdleKeepers) {
    idle_keepers_.push_back(&keeper);
  } else {
    keeper.send(KeeperMessage::shutdown, keeper::Shutdown());
  }
}

// What the keeper and its ranks started, as far as it carries their mark: the keeper's path, with
// its random name, which no other agent's keeper has.
std::vector<pid_t> Agent::started_by(const std::string& keeper) const {
  if (!options_->find_by_environment) return {};
  auto found = options_->find_by_environment(fmt::format("{}={}", kKeeperVariable, keeper));
  if (!found) TUTTI_LOG(warn, "cannot look for orphans", {{"why", found.error().text()}});
  return found.value_or(std::vector<pid_t>());
}

// Where the kernel has a group of what the keeper started, that is killed. What it started may also
// descend from us now, since we are a subreaper: with the group gone or not, it is looked for, and
// twice, since one whose parent dies while we look may be missed once. What descends from nobody,
// since the agent that started the keeper is dead too, is known by its environment.
Task<Result<void>> Agent::end_orphans(std::string keeper) {
  // A copy of another agent's folder must not end what that one has.
  if (!keeper.starts_with(options_->folder + "/")) co_return {};
  Processes& processes = world_.processes();
  const Instant give_up = world_.clock().now() + kEndPatience;
  auto group = processes.open_group(group_of_keeper(keeper));
  if (group && (*group)->kill()) {
    auto emptying = (*group)->emptied();
    (void)co_await with_deadline(world_.clock(), give_up, std::move(emptying));
  }
  for (int looks = 0; looks < 2; ++looks) {
    processes.reap_orphans();
    std::vector<pid_t> spare;  // the other keepers, also those that were started meanwhile
    for (const auto& other : keepers_)
      if (!other->gone()) spare.push_back(other->pid());
    auto left = processes.descendants(spare);
    if (!left) co_return fail(std::move(left).error());
    const auto members = group ? (*group)->members() : std::vector<pid_t>();
    if (members) left->insert(left->end(), members->begin(), members->end());
    const std::vector<pid_t> marked = started_by(keeper);
    left->insert(left->end(), marked.begin(), marked.end());
    std::ranges::sort(*left);
    left->erase(std::ranges::unique(*left).begin(), left->end());
    if (!left->empty()) looks = -1;
    if (!left->empty() && world_.clock().now() >= give_up)
      co_return fail(Code::exhausted, "processes {} do not end even when killed",
                     name_processes(processes, *left));
    for (const pid_t pid : *left) (void)processes.signal(pid, SIGKILL);
    auto slept = co_await world_.clock().sleep(kOrphanPause);
    if (!slept) co_return slept;
  }
  co_return {};
}

void Agent::reap_keepers() {
  std::erase_if(idle_keepers_, [](const KeeperSession* keeper) { return keeper->gone(); });
  std::erase_if(keepers_, [](const auto& keeper) { return keeper->gone() && keeper->over(); });
}

Task<std::unique_ptr<KeeperSession>> Agent::connect_keeper(std::string path) {
  Address address = Address::unix_socket(path);
  Task<Result<std::unique_ptr<Stream>>> connecting = world_.network().connect(std::move(address));
  const Instant patience = world_.clock().now() + kKeeperPatience;
  auto stream = co_await with_deadline(world_.clock(), patience, std::move(connecting));
  if (!stream) co_return nullptr;
  co_return std::make_unique<KeeperSession>(
      world_, std::make_unique<KeeperStream>(std::move(*stream)), nullptr, path);
}

// An agent that cannot look must not go on: it would take what lives for dead, and nobody would own
// it.
Task<Result<void>> Agent::find_keepers() {
  auto names = co_await world_.disk().list(options_->folder + "/keepers");
  if (names) beginning_->keepers = std::move(*names);
  if (!names && names.error().code() != Code::not_found) co_return fail(std::move(names).error());
  co_return {};
}

// What an agent before us left: keepers with jobs, keepers without, and jobs without a keeper.
Task<void> Agent::adopt_all() {
  std::map<std::string, KeeperSession*> by_path;
  std::vector<std::string> dead;
  for (const std::string& name : beginning_->keepers) {
    std::string path = fmt::format("{}/keepers/{}", options_->folder, name);
    auto keeper = co_await connect_keeper(path);
    if (keeper == nullptr) {
      dead.push_back(std::move(path));
      continue;
    }
    keepers_.push_back(std::move(keeper));
    by_path[path] = keepers_.back().get();
  }
  // A keeper speaks as soon as it is greeted: its job must listen by then.
  for (const auto& [path, keeper] : by_path)
    keeper->start([this] { ring_time(); }, options_->keeper.speak);
  for (auto& [id, record] : beginning_->jobs) {
    const auto keeper = by_path.find(record.keeper());
    HostJob& job = add_job(id);
    job.adopt(record, keeper == by_path.end() ? nullptr : keeper->second);
    job.restore_exchange(beginning_->exchanges[id]);
    if (keeper != by_path.end()) by_path.erase(keeper);
  }
  // What a dead keeper left is ended by the job that it had, or by us.
  for (const std::string& path : dead) {
    const auto had = [&](const auto& job) { return job.second.keeper() == path; };
    if (options_->find_by_environment && std::ranges::none_of(beginning_->jobs, had)) {
      strands_->spawn(end_unowned(path));
    } else {
      (void)co_await world_.disk().remove(path);
    }
  }
  // Whatever these have is of no job, and may not be clean.
  for (const auto& [path, keeper] : by_path)
    keeper->send(KeeperMessage::shutdown, keeper::Shutdown());
  for (const auto& [id, record] : beginning_->coordinators) appoint(record);
  if (options_->warm_keepers == 0) co_return;
  (void)co_await world_.disk().make_directories(options_->folder + "/keepers");
  keep_warm();
}

// Its socket goes last: should we die before, the next agent looks again.
Task<void> Agent::end_unowned(std::string keeper) {
  while (true) {
    auto ended = co_await end_orphans(keeper);
    if (ended) break;
    if (ended.error().code() == Code::cancelled) co_return;
    TUTTI_LOG(error, "a dead keeper left something",
              {{"keeper", keeper}, {"what", ended.error().message()}});
    auto slept = co_await world_.clock().sleep(kLeftoverPause);
    if (!slept) co_return;
  }
  (void)co_await world_.disk().remove(keeper);
}

Result<void> Agent::on_snapshot(uint64_t, std::string_view state) {
  cluster::AgentSnapshot snapshot;
  if (!snapshot.ParseFromArray(state.data(), static_cast<int>(state.size())))
    return fail(Code::corrupt, "the snapshot of the agent's log does not parse");
  for (const cluster::AgentRecord& record : snapshot.records()) TRY_DO(replay(record));
  return {};
}

Result<void> Agent::on_record(uint64_t sequence, std::string_view bytes) {
  cluster::AgentRecord record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return fail(Code::corrupt, "record {} of the agent's log does not parse", sequence);
  return replay(record);
}

Result<void> Agent::replay(const cluster::AgentRecord& record) {
  if (record.has_host()) {
    const cluster::HostRecord& host = record.host();
    if (host.ended() || host.ending()) ended_[host.job()] = host.last_epoch();
    cluster::HostRecord& kept = beginning_->jobs[host.job()];
    if (host.has_directive()) kept.Clear();  // else it adds to what was said before
    kept.MergeFrom(host);
    if (host.ended()) beginning_->jobs.erase(host.job());
    if (host.ended()) beginning_->exchanges.erase(host.job());
  } else if (record.has_exchange()) {
    beginning_->exchanges[record.exchange().job()].push_back(record.exchange());
  } else if (record.has_coordinator()) {
    const uint64_t job = record.coordinator().appointment().job();
    beginning_->coordinators.erase(job);
    if (!record.coordinator().ended()) beginning_->coordinators.emplace(job, record.coordinator());
    if (record.coordinator().ended()) remember_term(job, record.coordinator().appointment().term());
  } else if (record.node() != kHead && options_->announce) {
    beginning_->place.tree.node = logged_node_ = record.node();
  }
  return {};
}

}  // namespace tutti
