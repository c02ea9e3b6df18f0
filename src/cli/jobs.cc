#include "cli/jobs.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/range_set.h"
#include "cli/arguments.h"
#include "cli/cluster.h"
#include "cli/cluster_run.h"
#include "cli/job_words.h"
#include "cli/table.h"
#include "world/real/real_world.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kCalledWrongly = 2;

int complain(std::string_view verb, const Error& error, int code) {
  fmt::print(stderr, "tutti {}: {}\n", verb, error.text());
  return code;
}

// ---- jobs

struct JobsOptions {
  bool all = false;
  bool json = false;
};

Task<Result<int>> show_jobs(Cluster& cluster, JobsOptions options) {
  cluster::JobsRequest request;
  request.set_all(options.all);
  auto reply = co_await cluster.client->ask(api::kJobs, std::move(request));
  if (!reply) co_return fail(std::move(reply).error());
  if (options.json) {
    Json list = Json::array();
    for (const cluster::JobInfo& job : reply->jobs()) list.push_back(job_json(job));
    fmt::print("{}\n", dump_json(list));
    co_return 0;
  }
  if (reply->jobs().empty()) {
    fmt::print("no jobs{}\n", options.all ? "" : " now; those that ended: tutti jobs --all");
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

// ---- submit

Task<Result<int>> submit_job(Cluster& cluster, job::Spec spec, bool json) {
  cluster::SubmitRequest request;
  *request.mutable_spec() = std::move(spec);
  auto reply = co_await cluster.client->ask(api::kSubmit, std::move(request));
  if (!reply) co_return fail(std::move(reply).error());
  if (json) fmt::print("{}\n", dump_json({{"job", reply->job()}}));
  if (!json) fmt::print("{}\n", reply->job());
  co_return 0;
}

Task<Result<int>> make_and_submit(Cluster& cluster, RunOptions options, uint64_t open_files) {
  const bool json = options.json;
  auto spec = co_await make_job(cluster.world, std::move(options), open_files);
  if (!spec) co_return fail(std::move(spec).error());
  co_return co_await submit_job(cluster, std::move(*spec), json);
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
  RangeSet ranks;
  bool json = false;
};

Result<int> parse_signal(std::string_view text) {
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (whole && number > 0 && number < NSIG) return number;
  const std::string_view name = text.starts_with("SIG") ? text.substr(3) : text;
  for (number = 1; number < NSIG; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  return fail(Code::invalid, "there is no signal {}; write it as SIGUSR1, USR1 or 10", text);
}

Task<Result<int>> signal_job(Cluster& cluster, SignalOptions options) {
  cluster::SignalRequest request;
  request.set_job(options.job);
  request.set_number(options.number);
  set_pairs(options.ranks, request.mutable_processes());
  auto sent = co_await cluster.client->ask(api::kSignal, std::move(request));
  if (!sent) co_return fail(std::move(sent).error());
  if (options.json) fmt::print("{}\n", dump_json({{"job", options.job}, {"sent", options.number}}));
  co_return 0;
}

}  // namespace

int jobs(int argc, char** argv) {
  CLI::App app("Shows the jobs of the cluster, newest first.");
  app.name("tutti jobs");
  JobsOptions options;
  app.add_flag("--all", options.all, "those that ended too");
  app.add_flag("--json", options.json, "for tools");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  return with_cluster("jobs", [&](Cluster& cluster) { return show_jobs(cluster, options); });
}

int submit(int argc, char** argv) {
  auto options = parse_run_options(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  if (!options) return complain("submit", options.error(), kCalledWrongly);
  if (options->help) {
    fmt::print(
        "tutti submit: as `tutti run` on a cluster, but prints the job's number and returns at "
        "once\n\nusage: tutti submit [options] JOB.toml\n       tutti submit [-n RANKS] [options] "
        "-- COMMAND\n\nThe options are those of `tutti run`, see: tutti help run\n");
    return 0;
  }
  auto limit = allow_open_files(0);
  if (!limit) return complain("submit", limit.error(), kFailed);
  return with_cluster("submit", [&](Cluster& cluster) {
    return make_and_submit(cluster, std::move(*options), *limit);
  });
}

int kill(int argc, char** argv) {
  CLI::App app("Ends a job, with grace, and waits until nothing of it is left.");
  app.name("tutti kill");
  KillOptions options;
  std::string grace;
  app.add_option("JOB", options.job, "its number, see `tutti jobs`")->required();
  app.add_option("--grace", grace, "from SIGTERM to SIGKILL (the job's own): 0s, 10s, 1m");
  app.add_flag("--notice", options.notice,
               "preempt it: first its notice_signal, and its notice's time to save and end");
  app.add_flag("--json", options.json, "for tools");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  if (!grace.empty()) {
    auto parsed = parse_duration(grace);
    if (!parsed) return complain("kill", parsed.error(), kCalledWrongly);
    options.grace = *parsed;
  }
  return with_cluster("kill", [&](Cluster& cluster) { return kill_job(cluster, options); });
}

int signal(int argc, char** argv) {
  CLI::App app("Sends a signal to the processes of a job.");
  app.name("tutti signal");
  SignalOptions options;
  std::string number;
  std::string ranks;
  app.add_option("JOB", options.job, "its number, see `tutti jobs`")->required();
  app.add_option("SIGNAL", number, "SIGUSR1, USR1 or 10")->required();
  app.add_option("--rank", ranks, "only these: 0,3-5 (all); as `tutti ps` numbers processes");
  app.add_flag("--json", options.json, "for tools");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  auto parsed = parse_signal(number);
  if (!parsed) return complain("signal", parsed.error(), kCalledWrongly);
  options.number = *parsed;
  auto set = ranks.empty() ? Result<RangeSet>(RangeSet()) : RangeSet::parse(ranks);
  if (!set) return complain("signal", set.error(), kCalledWrongly);
  options.ranks = *set;
  return with_cluster("signal", [&](Cluster& cluster) { return signal_job(cluster, options); });
}

}  // namespace tutti::cli
