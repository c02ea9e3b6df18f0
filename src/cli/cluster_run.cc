#include "cli/cluster_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>

#include "cli/job_report.h"

namespace tutti::cli {
namespace {

// After the job is over: whoever says nothing for so long is asked anew, and then given up.
constexpr Duration kAskAgainPatience = 1s;
constexpr Duration kLastWordsPatience = 2s;
// Between questions to a host that has not heard yet that the job came back to it.
constexpr Duration kShortestPause = 50ms;
constexpr Duration kLongestPause = 1s;
// Between tries to tell a head that is away that the job shall end.
constexpr Duration kKillPause = 200ms;

class ClusterRun final : private JobListener {
 public:
  ClusterRun(Cluster& cluster, JobViewer& viewer, Channel<int>& signals, uint32_t processes)
      : cluster_(cluster), viewer_(viewer), signals_(signals), teller_(viewer, processes) {}

  Task<GangReport> run(job::Spec spec);
  Task<GangReport> watch(uint64_t job);

 private:
  Task<GangReport> until_over(Task<Result<cluster::JobInfo>> changes);
  // What one host says. The job may leave it and come back.
  class Host final : public OutputListener {
   public:
    explicit Host(ClusterRun& run) : run_(run) {}
    void on_event(const cluster::ProcessEvent& event) override {
      hear_of(event.process());
      run_.teller_.on_event(event);
    }
    Task<Result<void>> on_output(uint32_t process, uint8_t stream, Bytes bytes) override {
      hear_of(process);
      return run_.tell(process, stream, bytes);
    }
    void ask_again() {
      if (calling == nullptr) return;
      again = true;
      calling->cancel();
    }

    OutputPlace place;
    uint64_t wanted = 0;       // the last epoch in which the job is here, as the head says
    RangeSet seen;             // processes that were here
    Scope* calling = nullptr;  // while it is asked
    bool following = false;
    bool again = false;
    bool done = false;  // it has said all

   private:
    void hear_of(uint32_t process) {
      ++run_.heard_;
      if (!seen.contains(process)) seen.add(process);
    }
    ClusterRun& run_;
  };

  void on_change(const cluster::JobInfo& info) override;
  void on_head_away(const Error& why) override;
  void follow_in(const cluster::HostAbout& member, uint64_t epoch);
  Task<void> follow(Host& host);
  Task<Result<void>> ask_all(Host& host);
  Task<Result<void>> ask(Host& host);
  Task<void> ask_into(Host& host, Result<void>& outcome);
  void on_failure(Host& host, const Error& why);
  void tell_missing();
  Task<Result<void>> tell(uint32_t process, uint8_t stream, Bytes bytes);
  Task<void> obey_signals(Scope& watching);
  void begin_end(GangEnd end, int signal);
  Task<void> kill(Duration grace, int signal);
  Task<void> pause();
  Task<void> give_up_silent(Scope& following);

  Cluster& cluster_;
  JobViewer& viewer_;
  Channel<int>& signals_;
  JobTeller teller_;
  std::map<std::string, std::unique_ptr<Host>> hosts_;  // by name; those we follow
  Scope* following_ = nullptr;
  Scope* asking_ = nullptr;
  uint64_t job_ = 0;
  std::optional<std::pair<Duration, int>> kill_;  // wanted: grace and signal
  std::optional<GangEnd> ended_by_us_;
  bool hurried_ = false;
  bool abandoned_ = false;
  bool over_ = false;  // the job
  bool told_away_ = false;
  bool told_waiting_ = false;
  bool told_denied_ = false;
  uint32_t restarts_ = 0;
  uint64_t heard_ = 0;
  int printing_ = 0;
};

void ClusterRun::on_change(const cluster::JobInfo& info) {
  told_away_ = false;
  const bool first = job_ == 0;
  job_ = info.job();
  if (first && kill_) asking_->spawn(kill(kill_->first, kill_->second));
  if (info.state() == cluster::QUEUED && !std::exchange(told_waiting_, true))
    viewer_.print_notice(fmt::format(
        "job {} waits: {}; `tutti status` shows the hosts, Ctrl-C gives up", job_, info.why()));
  if (info.restarts() > restarts_)
    viewer_.print_notice(
        fmt::format("job {} is restarted, {} so far: {}", job_, info.restarts(),
                    info.why().empty() ? "one of its processes ended" : info.why()));
  restarts_ = info.restarts();
  over_ = info.state() >= cluster::SUCCEEDED;
  for (const cluster::HostAbout& member : info.members()) follow_in(member, info.epoch());
}

void ClusterRun::follow_in(const cluster::HostAbout& member, uint64_t epoch) {
  auto& host = hosts_[member.name()];
  const bool is_new = host == nullptr;
  if (is_new) {
    host = std::make_unique<Host>(*this);
    host->place.next.set_job(job_);
  }
  host->wanted = std::max(host->wanted, epoch);
  const bool moved = host->place.host.api() != member.api();
  host->place.host = member;
  if (host->following) {
    if (moved) host->ask_again();
  } else if (is_new || host->place.epoch < host->wanted) {
    host->following = true;
    following_->spawn(follow(*host));
  }
}

void ClusterRun::on_head_away(const Error& why) {
  if (std::exchange(told_away_, true)) return;
  viewer_.print_notice(
      fmt::format("the head does not answer ({}); job {} goes on without it, and so do we",
                  why.message(), job_));
}

Task<void> ClusterRun::follow(Host& host) {
  host.done = false;
  auto followed = co_await ask_all(host);
  host.done = followed.has_value();
  host.following = false;
  if (!followed) on_failure(host, followed.error());
}

// Until it has said all of the epochs that the head tells of, or there will be no more.
Task<Result<void>> ClusterRun::ask_all(Host& host) {
  if (host.place.host.name() != cluster_.machine.name) {
    auto loaded = co_await cluster_.load_certificate();
    if (!loaded) {
      host.place.trouble = loaded.error();
      co_return fail(std::move(loaded).error());
    }
  }
  Duration pause = kShortestPause;
  while (true) {
    const bool over = over_;
    auto asked = co_await ask(host);
    if (!asked) co_return asked;
    if (over || host.place.epoch >= host.wanted) co_return {};
    auto slept = co_await cluster_.world.clock().sleep(pause);
    if (!slept) co_return slept;
    pause = std::min(2 * pause, kLongestPause);
  }
}

Task<Result<void>> ClusterRun::ask(Host& host) {
  while (true) {
    Result<void> outcome;
    Scope calling;
    host.calling = &calling;
    calling.spawn(ask_into(host, outcome));
    (void)co_await calling.join();
    host.calling = nullptr;
    if (!std::exchange(host.again, false) || outcome) co_return outcome;
  }
}

Task<void> ClusterRun::ask_into(Host& host, Result<void>& outcome) {
  auto followed = co_await cluster_.client->follow(host.place, host);
  outcome = std::move(followed);
}

void ClusterRun::on_failure(Host& host, const Error& why) {
  if (why.code() == Code::cancelled) return;
  if (viewer_.broken()) {
    teller_.output_lost(why);
    if (!ended_by_us_) begin_end(GangEnd::output_lost, 0);
  } else if (why.code() == Code::denied) {
    host.done = true;
    if (!std::exchange(told_denied_, true)) viewer_.on_denied(why);
  }
}

// Whoever started nothing and was never away has nothing that could be missing.
void ClusterRun::tell_missing() {
  if (abandoned_ || viewer_.broken() || told_denied_) return;
  for (const auto& [name, host] : hosts_) {
    if (host->done || (host->seen.empty() && !host->place.trouble)) continue;
    const Error why =
        host->place.trouble.value_or(Error(Code::unavailable, "its agent says nothing more"));
    viewer_.on_output_missing(name, host->seen, why);
  }
}

Task<Result<void>> ClusterRun::tell(uint32_t process, uint8_t stream, Bytes bytes) {
  ++heard_;
  if (!teller_.knows(process)) co_return {};
  ++printing_;
  const RankStream to = stream == 1 ? RankStream::output : RankStream::error;
  auto printed = co_await viewer_.on_output(process, to, bytes);
  --printing_;
  co_return printed;
}

void ClusterRun::begin_end(GangEnd end, int signal) {
  ended_by_us_ = end;
  const Duration own_grace = Duration(-1);
  kill_ = {own_grace, 0};
  teller_.report().signal = signal;
  teller_.begin_end(end);
  if (job_ != 0) asking_->spawn(kill(own_grace, 0));
}

// Until the head has heard it.
Task<void> ClusterRun::kill(Duration grace, int signal) {
  while (true) {
    cluster::KillRequest request;
    request.set_job(job_);
    request.set_grace_ns(to_ns(grace));
    request.set_signal(signal);
    auto killed = co_await cluster_.client->ask(api::kKill, std::move(request));
    if (killed || killed.error().code() == Code::cancelled) co_return;
    auto slept = co_await cluster_.world.clock().sleep(kKillPause);
    if (!slept) co_return;
  }
}

Task<void> ClusterRun::pause() {
  cluster::SignalRequest request;
  request.set_job(job_);
  request.set_number(SIGTSTP);
  (void)co_await cluster_.client->ask(api::kSignal, request);
  viewer_.on_paused();
  request.set_number(SIGCONT);
  (void)co_await cluster_.client->ask(api::kSignal, request);
}

Task<void> ClusterRun::obey_signals(Scope& watching) {
  while (true) {
    auto number = co_await signals_.recv();
    if (!number) co_return;
    if (*number == SIGTSTP) {
      co_await pause();
    } else if (!ended_by_us_) {
      begin_end(GangEnd::interrupted, *number);
    } else if (!std::exchange(hurried_, true)) {
      teller_.report().hurried = true;
      viewer_.on_hurried();
      kill_ = {0s, SIGKILL};
      if (job_ != 0) asking_->spawn(kill(0s, SIGKILL));
    } else {
      abandoned_ = true;
      watching.cancel();
    }
  }
}

// Who is silent may be one whose connection broke without a word.
Task<void> ClusterRun::give_up_silent(Scope& following) {
  Duration patience = kAskAgainPatience;
  while (true) {
    const uint64_t before = heard_;
    auto slept = co_await cluster_.world.clock().sleep(patience);
    if (!slept) co_return;
    if (heard_ != before || printing_ != 0) continue;
    if (std::exchange(patience, kLastWordsPatience) == kLastWordsPatience) break;
    for (const auto& [name, host] : hosts_) host->ask_again();
  }
  following.cancel();
}

// Into the outcome, when the job is over or we are.
Task<void> keep(Task<Result<cluster::JobInfo>> watching, Result<cluster::JobInfo>& into) {
  auto info = co_await std::move(watching);
  into = std::move(info);
}

Task<GangReport> ClusterRun::run(job::Spec spec) {
  cluster::SubmitRequest request;
  *request.mutable_spec() = std::move(spec);
  return until_over(cluster_.client->run(std::move(request), *this));
}

Task<GangReport> ClusterRun::watch(uint64_t job) {
  return until_over(cluster_.client->watch(job, *this));
}

Task<GangReport> ClusterRun::until_over(Task<Result<cluster::JobInfo>> changes) {
  const Instant began = cluster_.world.clock().now();
  Result<cluster::JobInfo> info = cluster::JobInfo();
  Scope following;
  Scope asking;
  Scope watching;
  Scope obeying;
  following_ = &following;
  asking_ = &asking;
  obeying.spawn(obey_signals(watching));
  watching.spawn(keep(std::move(changes), info));
  (void)co_await watching.join();
  over_ = true;
  if (abandoned_) following.cancel();
  Scope giving_up;
  giving_up.spawn(give_up_silent(following));
  (void)co_await following.join();
  for (Scope* scope : {&giving_up, &asking, &obeying}) {
    scope->cancel();
    (void)co_await scope->join();
  }
  tell_missing();
  GangReport& report = teller_.report();
  report.elapsed = cluster_.world.clock().now() - began;
  if (abandoned_)
    info = fail(Code::unavailable, "gave up; job {} may go on, see `tutti jobs`", job_);
  co_return teller_.finish(info, ended_by_us_);
}

}  // namespace

Task<GangReport> run_on_cluster(Cluster& cluster, job::Spec spec, JobViewer& viewer,
                                Channel<int>& signals) {
  const uint32_t processes = JobNumbers(spec).size();
  ClusterRun run(cluster, viewer, signals, processes);
  co_return co_await run.run(std::move(spec));
}

Task<GangReport> watch_on_cluster(Cluster& cluster, cluster::JobInfo job, JobViewer& viewer,
                                  Channel<int>& signals) {
  ClusterRun run(cluster, viewer, signals, job.processes());
  co_return co_await run.watch(job.job());
}

}  // namespace tutti::cli
