// tutti run: a gang of processes, as a job of the cluster or as children of this command.
#include "cli/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>

#include "cli/cluster_run.h"
#include "cli/complain.h"
#include "cli/embedded.h"
#include "cli/gang_printer.h"
#include "cli/programs.h"
#include "cli/run_environment.h"
#include "cli/run_options.h"
#include "cli/table.h"
#include "cluster/rank_starter.h"
#include "world/real/background.h"
#include "world/real/real_world.h"
#include "world/real/signals.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

// Beside those of its ranks, what a keeper or its controller opens; and the ranks' ends of pipes of
// those that are just started.
constexpr uint64_t kOpenFilesBeside = 24 + 2 * kRanksAtOnce;
constexpr uint64_t kOpenFilesPerRank = 3;
// For output that nobody takes, once everything was ended because it had to be.
constexpr Duration kLastOutputPatience = 2s;

// What a run prints, and what Ctrl-Z does to it.
class RunListener final : public GangPrinter {
 public:
  using GangPrinter::GangPrinter;
  void on_paused() override { Signals::act_by_default(SIGTSTP); }
};

class Run {
 public:
  Run(RealWorld& world, RunOptions options, uint64_t open_files, Signals& signals)
      : world_(world), options_(std::move(options)), open_files_(open_files), signals_(signals) {}

  // Then it is a job there.
  void use_cluster(Cluster& cluster, job::Spec spec) {
    cluster_ = &cluster;
    spec_ = std::move(spec);
    options_.ranks = JobNumbers(spec_).size();
    if (spec_.timeout_ns() > 0) options_.timeout = Duration(spec_.timeout_ns());
    options_.grace = Duration(spec_.grace_ns());
    labels_ = process_labels(spec_);
  }

  // One sink when output and error are the same file: two would write into each other's lines.
  Task<GangReport> run(OutputSink& output, OutputSink& error);

 private:
  GangOptions gang_options();
  Task<void> pump_signals();
  Task<void> give_up_output(Scope& writing, bool patient);
  void print_verdict(const GangReport& report, GangPrinter& printer, OutputSink& error) const;

  RealWorld& world_;
  RunOptions options_;
  uint64_t open_files_;  // the limit that ranks get
  Cluster* cluster_ = nullptr;
  job::Spec spec_;
  std::vector<std::string> labels_;  // of processes; none when they are ranks of one gang
  Signals& signals_;
  Channel<int> arrived_{4};
  Handle standard_error_{kStandardError, borrowed_};
  struct Borrowed final : HandleTable {
    void close_handle(int) override {}
  };
  static inline Borrowed borrowed_;
};

GangOptions Run::gang_options() {
  GangOptions gang;
  gang.size = options_.ranks;
  gang.command = options_.command;
  gang.environment = environment_of_ranks(options_, world_.random());
  gang.folder = options_.folder;
  gang.timeout = options_.timeout;
  gang.grace = options_.grace;
  gang.open_files = open_files_;
  if (!options_.master_address.empty()) gang.master_address = options_.master_address;
  gang.master_port = options_.master_port;
  gang.keeper.program = kOwnProgram;
  gang.keeper.command = {kKeeperName, "keeper"};
  gang.keeper.environment = own_environment();
  if (options_.use_group)
    gang.keeper.group = fmt::format("run-{}-{:08x}", world_.processes().own_pid(),
                                    world_.random().below(1ULL << 32));
  gang.keeper.errors = &standard_error_;
  return gang;
}

Task<void> Run::pump_signals() {
  while (true) {
    auto number = co_await signals_.next();
    if (!number) co_return;
    int value = *number;
    arrived_.try_send(value);  // a fifth signal says nothing new
  }
}

// Whoever reads a pipe slowly gets everything; but not when the run had to end, or is told to.
Task<void> Run::give_up_output(Scope& writing, bool patient) {
  if (patient) {
    auto signal = co_await arrived_.recv();
    if (!signal) co_return;
  } else {
    auto slept = co_await world_.clock().sleep(kLastOutputPatience);
    if (!slept) co_return;
  }
  writing.cancel();
}

void Run::print_verdict(const GangReport& report, GangPrinter& printer, OutputSink& error) const {
  const VerdictOptions style{.grace = options_.grace,
                             .timeout = options_.timeout,
                             .colour = error.colour(),
                             .labels = labels_};
  printer.print_held_exits();
  printer.end_live_line();
  if (options_.json) printer.print_event(verdict_json(report, printer.tails(), labels_));
  error.text() += verdict_text(report, printer.tails(), style);
  if (report.end == GangEnd::finished && error.colour() && !options_.json)
    error.text() +=
        fmt::format("\033[0;32mtutti: {} finished\033[0m in {}\n",
                    options_.ranks == 1 ? "1 rank" : fmt::format("all {} ranks", options_.ranks),
                    format_duration(report.elapsed));
  error.added();
}

Task<GangReport> Run::run(OutputSink& output, OutputSink& error) {
  const PrintStyle style = options_.json     ? PrintStyle::json
                           : options_.prefix ? PrintStyle::prefixed
                                             : PrintStyle::raw;
  RunListener printer(options_.ranks, style, output, error, labels_);
  Scope pumping;
  pumping.spawn(pump_signals());
  Scope writing;
  writing.spawn(output.write_all());
  if (&error != &output) writing.spawn(error.write_all());
  Task<GangReport> ranks = cluster_ != nullptr
                               ? run_on_cluster(*cluster_, std::move(spec_), printer, arrived_)
                               : run_gang(world_, gang_options(), printer, arrived_);
  GangReport report = co_await std::move(ranks);
  print_verdict(report, printer, error);
  output.close();
  Scope watching;
  const bool patient = report.end == GangEnd::finished || report.end == GangEnd::rank_failed ||
                       report.end == GangEnd::not_started;
  watching.spawn(give_up_output(writing, patient));
  error.close();
  (void)co_await writing.join();
  watching.cancel();
  pumping.cancel();
  (void)co_await watching.join();
  (void)co_await pumping.join();
  co_return report;
}

bool lost_some(const OutputSink& sink) {
  return sink.lost_bytes() > 0 && sink.trouble() && sink.trouble()->code() != Code::unavailable;
}

// Output that could not be written is told last, on what may still be readable, and is a failure.
int told_of_losses(int code, const OutputSink& output, const OutputSink& error) {
  for (const OutputSink* sink : {&output, &error}) {
    if (!lost_some(*sink) || (sink == &error && &error == &output)) continue;
    fmt::print(sink == &output ? stderr : stdout, "tutti: {} of {} were lost: {}\n",
               format_bytes(sink->lost_bytes()), sink == &output ? "output" : "standard error",
               sink->trouble()->text());
    if (code == 0) code = kFailed;
  }
  return code;
}

struct Outcome {
  int code = 0;
  int signal = 0;  // that ended the run
};

// Closed whichever way the run ends.
class OpenCluster {
 public:
  OpenCluster(RealWorld& world, std::unique_ptr<Cluster> cluster)
      : world_(world), cluster_(std::move(cluster)) {}
  ~OpenCluster() {
    if (cluster_ != nullptr) world_.run(cluster_->client->close());
  }
  OpenCluster(const OpenCluster&) = delete;
  OpenCluster& operator=(const OpenCluster&) = delete;
  Cluster* get() const { return cluster_.get(); }

 private:
  RealWorld& world_;
  std::unique_ptr<Cluster> cluster_;
};

// The cluster to run on; nothing when there is none and none is needed.
Result<std::unique_ptr<Cluster>> find_cluster(RealWorld& world, const RunOptions& options) {
  if (options.local) return nullptr;
  auto cluster = world.run(Cluster::open(world));
  const bool needed = options.cluster;
  // Too few descriptors to look for one are too few to run: that is told better below.
  const bool none = !cluster && (cluster.error().code() == Code::unavailable ||
                                 cluster.error().code() == Code::exhausted);
  if (!none || needed) return cluster;
  // There is one, and its head is away: what runs beside it unasked would be a surprise.
  TRY(const Home home, Home::open());
  if (!running_program(home.pid_file("agent"))) return nullptr;
  return fail(Code::unavailable, "{}; or run it beside the cluster with --local",
              cluster.error().text());
}

Result<Outcome> run_with(RunOptions options) {
  RealWorld world({.spin = 0s});
  TRY(std::unique_ptr<Cluster> found, find_cluster(world, options));
  std::unique_ptr<EmbeddedCluster> embedded;
  if (found == nullptr && (options.is_job_file() || options.replaces())) {
    TRY(const job::Spec spec, world.run(make_job(world, options, 0)));
    TRY(embedded, EmbeddedCluster::start(world, spec));
    TRY(found, world.run(Cluster::open(world, embedded->home())));
  }
  const OpenCluster open(world, std::move(found));
  Cluster* const cluster = open.get();
  const uint32_t children = cluster != nullptr ? 0 : options.ranks;
  if (children > kMostRanks)
    return fail(
        Code::invalid,
        "-n {}: {} ranks are the most that run without a cluster; begin one with `tutti up`",
        children, kMostRanks);
  auto before = allow_open_files(kOpenFilesBeside + kOpenFilesPerRank * children);
  if (!before) return fail(before.error().context(fmt::format("start {} ranks", options.ranks)));
  job::Spec spec;
  if (cluster != nullptr) {
    TRY(spec, world.run(make_job(world, options, *before)));
  }
  constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP};
  TRY(auto signals, Signals::create(world.loop(), kNumbers));
  TRY(auto output, open_standard_stream(world.loop(), kStandardOutput));
  OutputSink out(std::move(output), wants_colour(kStandardOutput));
  std::optional<OutputSink> apart;
  if (!same_file(kStandardOutput, kStandardError)) {
    TRY(auto error, open_standard_stream(world.loop(), kStandardError));
    apart.emplace(std::move(error), wants_colour(kStandardError));
  }
  OutputSink& err = apart ? *apart : out;
  const bool json = options.json;  // then standard error says nothing that output does not
  Run run(world, std::move(options), *before, *signals);
  if (cluster != nullptr) run.use_cluster(*cluster, std::move(spec));
  const GangReport report = world.run(run.run(out, err));
  return Outcome{.code = told_of_losses(report.exit_code(), out, json ? out : err),
                 .signal = report.end == GangEnd::interrupted ? report.signal : 0};
}

}  // namespace

int run_as(std::string_view verb, RunOptions options) {
  auto outcome = run_with(std::move(options));
  if (!outcome) return complain(verb, outcome.error());
  // Only one who dies of a signal tells a shell that its loop should end too.
  std::fflush(nullptr);
  if (outcome->signal != 0) Signals::act_by_default(outcome->signal);
  return outcome->code;
}

int run(int argc, char** argv) {
  auto options = parse_run_options(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  if (!options) return complain("run", options.error(), kCalledWrongly);
  if (options->help) {
    fmt::print("{}", kRunHelp);
    return 0;
  }
  return run_as("run", std::move(*options));
}

}  // namespace tutti::cli
