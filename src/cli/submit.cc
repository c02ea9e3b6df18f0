// tutti submit: jobs that nobody sits in front of, one or many.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/range_set.h"
#include "cli/cluster.h"
#include "cli/cluster_run.h"
#include "cli/complain.h"
#include "cli/job_words.h"
#include "cli/jobs.h"
#include "cluster/job_limits.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kIndexVariable = "TUTTI_ARRAY_INDEX";

constexpr std::string_view kSubmitHelp =
    R"(tutti submit: as `tutti run` on a cluster, but prints the job's number and returns at once

usage: tutti submit [options] JOB.toml…
       tutti submit [-n RANKS] [options] -- COMMAND

  --array NUMBERS   a job for each: 0-99 or 1,3,8-10. Each has its number in TUTTI_ARRAY_INDEX
                    and at the end of its name
  --wait            until all are over: tells of those that fail and how many did not; exit
                    code 1 if any did not succeed. Ctrl-C ends the waiting, not the jobs

Many jobs are submitted together, however many they are. The other options are those of
`tutti run`, see: tutti help run

examples:
  tutti submit --array 0-99 -- python try.py
  tutti submit --wait prepare.toml train.toml
)";

// The jobs of one command line: job files, each as often as the array says.
class Submission final : public ManyJobs {
 public:
  Submission(std::vector<job::Spec> specs, const RunOptions& options)
      : specs_(std::move(specs)),
        array_(options.array),
        wait_(options.wait),
        json_(options.json),
        numbers_(count()) {}

  size_t count() const override {
    return specs_.size() * (array_.empty() ? 1 : static_cast<size_t>(array_.size()));
  }

  cluster::SubmitRequest request(size_t place) override {
    cluster::SubmitRequest request;
    request.set_tell_end(wait_);
    *request.mutable_spec() = specs_[place % specs_.size()];
    if (array_.empty()) return request;
    const uint32_t index = array_.at(place / specs_.size());
    job::Spec& spec = *request.mutable_spec();
    const std::string end = fmt::format(".{}", index);
    spec.set_name(spec.name().substr(0, kMostNameBytes - end.size()) + end);
    spec.add_environment(fmt::format("{}={}", kIndexVariable, index));
    return request;
  }

  void on_submitted(size_t place, uint64_t job) override { numbers_[place] = job; }

  void on_refused(size_t, const Error& why) override {
    if (!refused_) refused_ = why;
    ++refusals_;
  }

  void on_over(size_t, const cluster::JobInfo& info) override {
    ++ends_[info.state()];
    if (json_) {
      fmt::print("{}\n", dump_json(job_json(info)));
    } else if (info.state() != cluster::SUCCEEDED) {
      fmt::print("job {} ({}): {}{}{}\n", info.job(), info.name(), state_name(info.state()),
                 info.why().empty() ? "" : ": ", info.why());
    }
  }

  void on_head_away(const Error& why) override {
    if (!std::exchange(told_away_, true))
      fmt::print(stderr, "tutti submit: the head does not answer ({}); asking again\n",
                 why.message());
  }

  // What the command prints in the end, and returns.
  Result<int> finish() const {
    if (wait_) {
      if (!json_) print_ends();
    } else {
      for (const uint64_t number : numbers_) print_number(number);
    }
    if (refused_ && count() == 1) return fail(*refused_);
    if (refused_)
      return fail(refused_->context(fmt::format("{} of {} jobs were refused", refusals_, count())));
    const auto good = ends_.find(cluster::SUCCEEDED);
    return !wait_ || (good != ends_.end() && good->second == count()) ? 0 : kFailed;
  }

 private:
  void print_number(uint64_t number) const {
    if (number == 0) return;
    if (json_) fmt::print("{}\n", dump_json({{"job", number}}));
    if (!json_) fmt::print("{}\n", number);
  }

  void print_ends() const {
    std::string text;
    for (const auto& [state, count] : ends_)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, state_name(state));
    if (!text.empty()) fmt::print("{}\n", text);
  }

  std::vector<job::Spec> specs_;
  RangeSet array_;
  bool wait_;
  bool json_;
  std::vector<uint64_t> numbers_;  // by place; 0: none
  std::map<cluster::JobState, size_t> ends_;
  std::optional<Error> refused_;
  size_t refusals_ = 0;
  bool told_away_ = false;
};

// Each word is a job file, or all of them are a command.
Task<Result<std::vector<job::Spec>>> make_jobs(World& world, RunOptions options,
                                               uint64_t open_files) {
  std::vector<job::Spec> specs;
  const auto is_file = [](const std::string& word) { return word.ends_with(".toml"); };
  std::vector<std::vector<std::string>> commands = {options.command};
  if (std::ranges::all_of(options.command, is_file)) {
    commands.clear();
    for (const std::string& file : options.command) commands.push_back({file});
  }
  for (std::vector<std::string>& command : commands) {
    RunOptions one = options;
    one.command = std::move(command);
    auto spec = co_await make_job(world, std::move(one), open_files);
    if (!spec) co_return fail(std::move(spec).error());
    specs.push_back(std::move(*spec));
  }
  co_return specs;
}

Task<Result<int>> make_and_submit(Cluster& cluster, RunOptions options, uint64_t open_files) {
  auto specs = co_await make_jobs(cluster.world, options, open_files);
  if (!specs) co_return fail(std::move(specs).error());
  Submission submission(std::move(*specs), options);
  auto submitted = co_await cluster.client->submit_many(submission);
  if (!submitted) co_return fail(std::move(submitted).error());
  co_return submission.finish();
}

}  // namespace

int submit(int argc, char** argv) {
  auto options = parse_submit_options(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  if (!options) {
    fmt::print(stderr, "tutti submit: {}\n", options.error().text());
    return kCalledWrongly;
  }
  if (options->help) {
    fmt::print("{}", kSubmitHelp);
    return 0;
  }
  auto limit = allow_open_files(0);
  if (!limit) {
    fmt::print(stderr, "tutti submit: {}\n", limit.error().text());
    return kFailed;
  }
  return with_cluster("submit", [&](Cluster& cluster) {
    return make_and_submit(cluster, std::move(*options), *limit);
  });
}

}  // namespace tutti::cli
