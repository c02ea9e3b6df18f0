#include "cli/cluster_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>

#include "cli/job_report.h"

namespace tutti::cli {
namespace {

// After the job is over: an agent that says nothing for so long has nothing more to say.
constexpr Duration kLastWordsPatience = 2s;
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
  // What one host says, until it has said all.
  class Host final : public OutputListener {
   public:
    explicit Host(ClusterRun& run) : run_(run) {}
    void on_event(const cluster::ProcessEvent& event) override {
      ++run_.heard_;
      run_.teller_.on_event(event);
    }
    Task<Result<void>> on_output(uint32_t process, uint8_t stream, Bytes bytes) override {
      return run_.tell(process, stream, bytes);
    }

   private:
    ClusterRun& run_;
  };

  void on_change(const cluster::JobInfo& info) override;
  void on_head_away(const Error& why) override;
  Task<void> follow(cluster::HostAbout host);
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
  for (const cluster::HostAbout& host : info.members()) {
    auto& known = hosts_[host.name()];
    if (known != nullptr) continue;
    known = std::make_unique<Host>(*this);
    following_->spawn(follow(host));
  }
}

void ClusterRun::on_head_away(const Error& why) {
  if (std::exchange(told_away_, true)) return;
  viewer_.print_notice(
      fmt::format("the head does not answer ({}); job {} goes on without it, and so do we",
                  why.message(), job_));
}

Task<void> ClusterRun::follow(cluster::HostAbout host) {
  if (host.name() != cluster_.machine.name) {
    auto loaded = co_await cluster_.load_certificate();
    if (!loaded) {
      viewer_.print_notice(fmt::format("no output of {}: {}", host.name(), loaded.error().text()));
      co_return;
    }
  }
  Host& listener = *hosts_[host.name()];
  auto followed = co_await cluster_.client->follow(host, job_, listener);
  if (followed || followed.error().code() == Code::cancelled) co_return;
  if (viewer_.broken()) {
    teller_.output_lost(followed.error());
    if (!ended_by_us_) begin_end(GangEnd::output_lost, 0);
    co_return;
  }
  if (followed.error().code() == Code::denied) {
    if (!std::exchange(told_denied_, true)) viewer_.on_denied(followed.error());
    co_return;
  }
  viewer_.print_notice(
      fmt::format("no more output of {}: {}", host.name(), followed.error().text()));
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

Task<void> ClusterRun::give_up_silent(Scope& following) {
  while (true) {
    const uint64_t before = heard_;
    auto slept = co_await cluster_.world.clock().sleep(kLastWordsPatience);
    if (!slept) co_return;
    if (heard_ == before && printing_ == 0) break;
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
  if (abandoned_) following.cancel();
  Scope giving_up;
  giving_up.spawn(give_up_silent(following));
  (void)co_await following.join();
  for (Scope* scope : {&giving_up, &asking, &obeying}) {
    scope->cancel();
    (void)co_await scope->join();
  }
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
