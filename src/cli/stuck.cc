// tutti stuck: which call the ranks of a job wait in, who has come, who has not, and what those do.
#include <fmt/format.h>

#include <cstdio>

#include "cli/arguments.h"
#include "cli/job_processes.h"
#include "cli/jobs.h"
#include "cli/stuck_words.h"

namespace tutti::cli {
namespace {

struct StuckOptions {
  uint64_t job = 0;
  bool ended = false;
  std::string processes;  // "" is none
  bool json = false;
};

Task<Result<int>> show_stuck(Cluster& cluster, StuckOptions options) {
  const StuckRequest request{.job = options.job,
                             .ended = options.ended,
                             .history = options.json || !options.processes.empty()};
  auto job = co_await ask_stuck(cluster, request);
  if (!job) co_return fail(std::move(job).error());
  if (options.json) {
    fmt::print("{}\n", dump_json(stuck_json(*job)));
  } else if (!options.processes.empty()) {
    CO_TRY(const RangeSet which, parse_processes(options.processes, job->info));
    fmt::print("{}", history_text(*job, which));
  } else {
    fmt::print("{}", stuck_text(*job));
  }
  co_return 0;
}

}  // namespace

int stuck(int argc, char** argv) {
  Arguments app(
      "Says what a job waits for: which collective, who has come, who has not, and what those do "
      "instead. Of a job that is over: what its processes did when they ended.");
  app.name("tutti stuck");
  app.footer(
      "examples:\n"
      "  tutti stuck 17\n"
      "  tutti stuck 17 --ended            what hung before it was started again\n"
      "  tutti stuck 17 --rank 2           the last calls of rank 2\n");
  StuckOptions options;
  app.add_option("JOB", options.job, "its number, see `tutti jobs`").required();
  app.add_flag("--ended", options.ended,
               "not what runs now, but what its processes did that failed or were ended last");
  app.add_option("--rank", options.processes,
                 "the last calls of these: 0,3-5, or worker/0,3-5 in a job of several roles");
  app.add_flag("--json", options.json, "for tools");
  if (const auto code = app.parse(argc, argv)) return *code;
  return with_cluster("stuck", [&](Cluster& cluster) { return show_stuck(cluster, options); });
}

}  // namespace tutti::cli
