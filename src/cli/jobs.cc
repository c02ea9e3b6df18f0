#include "cli/jobs.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "base/range_set.h"
#include "cli/arguments.h"
#include "cli/cluster.h"
#include "cli/complain.h"
#include "cli/job_filter.h"
#include "cli/job_processes.h"
#include "cli/job_words.h"
#include "cli/table.h"
#include "cluster/job_layout.h"
#include "world/real/real_world.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

// ---- jobs

struct JobsOptions {
  std::vector<uint64_t> numbers;  // none: those that the filter lets through
  JobFilter filter;
  bool json = false;
};

Task<Result<cluster::JobsReply>> find_jobs(Cluster& cluster, JobsOptions options) {
  if (options.numbers.empty()) {
    CO_TRY(auto request, request_of(options.filter, cluster.world.clock().unix_ns()));
    co_return co_await cluster.client->ask(api::kJobs, std::move(request));
  }
  cluster::JobsReply reply;
  for (const uint64_t number : options.numbers) {
    cluster::JobRequest request;
    request.set_job(number);
    auto job = co_await cluster.client->ask(api::kJob, std::move(request));
    if (!job) co_return fail(std::move(job).error());
    *reply.add_jobs() = std::move(*job);
  }
  co_return reply;
}

std::string nothing_found(const JobFilter& filter) {
  const bool picks = !filter.states.empty() || !filter.user.empty() || !filter.name.empty() ||
                     !filter.since.empty();
  const bool all = filter.all || !filter.states.empty() || !filter.since.empty();
  return fmt::format("no {}jobs{}\n", picks ? "such " : "",
                     all ? "" : " now; those that ended: tutti jobs --all");
}

Task<Result<int>> show_jobs(Cluster& cluster, JobsOptions options) {
  auto reply = co_await find_jobs(cluster, options);
  if (!reply) co_return fail(std::move(reply).error());
  if (!reply->missing().empty())
    fmt::print(stderr, "tutti jobs: older jobs may be missing: {}\n", reply->missing());
  if (options.json) {
    Json list = Json::array();
    for (const cluster::JobInfo& job : reply->jobs()) list.push_back(job_json(job));
    fmt::print("{}\n", dump_json(list));
    co_return 0;
  }
  if (reply->jobs().empty()) {
    fmt::print("{}", nothing_found(options.filter));
    co_return 0;
  }
  const int64_t now = cluster.world.clock().unix_ns();
  Table table({"JOB", "NAME", "STATE", "PROCESSES", "RESTARTS", "AGE", "USER", "WHY"});
  for (const cluster::JobInfo& job : reply->jobs())
    table.add({fmt::format("{}", job.job()), job.name(), std::string(state_name(job.state())),
               fmt::format("{}", job.processes()), fmt::format("{}", job.restarts()),
               age_text(now, job.submitted_unix_ns()), job.user(), job.why()});
  fmt::print("{}", table.text(wants_colour(kStandardOutput)));
  co_return 0;
}

// ---- kill

struct KillOptions {
  uint64_t job = 0;
  std::optional<Duration> grace;
  bool notice = false;
  bool json = false;
};

class Patient final : public JobListener {
 public:
  void on_change(const cluster::JobInfo&) override {}
  void on_head_away(const Error&) override {}
};

Task<Result<int>> kill_job(Cluster& cluster, KillOptions options) {
  cluster::KillRequest request;
  request.set_job(options.job);
  request.set_grace_ns(options.grace ? to_ns(*options.grace) : -1);
  request.set_preempt(options.notice);
  auto killed = co_await cluster.client->ask(api::kKill, std::move(request));
  if (!killed) co_return fail(std::move(killed).error());
  Patient listener;
  auto info = co_await cluster.client->watch(options.job, listener);
  if (!info) co_return fail(std::move(info).error());
  if (options.json) {
    fmt::print("{}\n", dump_json(job_json(*info)));
  } else {
    const bool says_more = info->state() == cluster::KILLED_BY_USER && info->why() != "killed";
    fmt::print("job {} ({}): {}{}\n", info->job(), info->name(), state_name(info->state()),
               says_more ? ", " + info->why() : "");
  }
  co_return 0;
}

// ---- signal

struct SignalOptions {
  uint64_t job = 0;
  int number = 0;
  std::string processes;  // "" is all
  bool json = false;
};

Task<Result<int>> signal_job(Cluster& cluster, SignalOptions options) {
  cluster::SignalRequest request;
  request.set_job(options.job);
  request.set_number(options.number);
  if (!options.processes.empty()) {
    cluster::JobRequest wanted;
    wanted.set_job(options.job);
    auto job = co_await cluster.client->ask(api::kJob, std::move(wanted));
    if (!job) co_return fail(std::move(job).error());
    CO_TRY(const RangeSet processes, parse_processes(options.processes, *job));
    set_pairs(processes, request.mutable_processes());
  }
  auto sent = co_await cluster.client->ask(api::kSignal, std::move(request));
  if (!sent) co_return fail(std::move(sent).error());
  if (options.json) fmt::print("{}\n", dump_json({{"job", options.job}, {"sent", options.number}}));
  co_return 0;
}

}  // namespace

int jobs(int argc, char** argv) {
  Arguments app("Shows the jobs of the cluster, newest first.");
  app.name("tutti jobs");
  app.footer(
      "examples:\n"
      "  tutti jobs --state failed,timed-out --since 2h\n"
      "  tutti jobs --all --user ann --name 'sweep*' --limit 50\n"
      "  tutti jobs 17 --json\n");
  JobsOptions options;
  JobFilter& filter = options.filter;
  app.add_option("JOB", options.numbers, "only these, by their numbers");
  app.add_flag("--all", filter.all, "those that ended too");
  app.add_option("--state", filter.states, "only those that are so: running, failed,killed");
  app.add_option("--user", filter.user, "only those of this user");
  app.add_option("--name", filter.name, "only those called so; * is any text, ? any character");
  app.add_option("--since", filter.since,
                 "only those submitted so long ago, or later: 30m, 2h, 7d");
  app.add_option("--limit", filter.limit, "at most so many, the newest (5000)");
  app.add_flag("--json", options.json, "for tools");
  if (const auto code = app.parse(argc, argv)) return *code;
  if (auto request = request_of(filter, 0); !request)
    return complain("jobs", request.error(), kCalledWrongly);
  return with_cluster("jobs", [&](Cluster& cluster) { return show_jobs(cluster, options); });
}

int kill(int argc, char** argv) {
  Arguments app("Ends a job, with grace, and waits until nothing of it is left.");
  app.name("tutti kill");
  KillOptions options;
  std::string grace;
  app.add_option("JOB", options.job, "its number, see `tutti jobs`").required();
  app.add_option("--grace", grace, "from SIGTERM to SIGKILL (the job's own): 0s, 10s, 1m");
  app.add_flag("--notice", options.notice,
               "preempt it: first its notice_signal, and its notice's time to save and end");
  app.add_flag("--json", options.json, "for tools");
  if (const auto code = app.parse(argc, argv)) return *code;
  if (!grace.empty()) {
    auto parsed = parse_duration(grace);
    if (!parsed) return complain("kill", parsed.error(), kCalledWrongly);
    options.grace = *parsed;
  }
  return with_cluster("kill", [&](Cluster& cluster) { return kill_job(cluster, options); });
}

int signal(int argc, char** argv) {
  Arguments app("Sends a signal to the processes of a job.");
  app.name("tutti signal");
  SignalOptions options;
  std::string number;
  app.add_option("JOB", options.job, "its number, see `tutti jobs`").required();
  app.add_option("SIGNAL", number, "SIGUSR1, USR1 or 10").required();
  app.add_option(
      "--rank", options.processes,
      "only these (all): 0,3-5, or worker/0,3-5 in a job of several roles; worker is all "
      "of one role");
  app.add_flag("--json", options.json, "for tools");
  if (const auto code = app.parse(argc, argv)) return *code;
  auto parsed = parse_signal(number);
  if (!parsed) return complain("signal", parsed.error(), kCalledWrongly);
  options.number = *parsed;
  return with_cluster("signal", [&](Cluster& cluster) { return signal_job(cluster, options); });
}

}  // namespace tutti::cli
