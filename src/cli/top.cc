#include "cli/top.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <limits>

#include "cli/arguments.h"
#include "cli/complain.h"
#include "cli/job_words.h"
#include "cli/screen.h"
#include "cli/table.h"
#include "cli/top_view.h"
#include "cluster/job_layout.h"
#include "world/alarm.h"
#include "world/real/real_world.h"
#include "world/real/signals.h"
#include "world/real/terminal.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr int kNumbers[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
// After Escape, for the rest of what an arrow sends.
constexpr Duration kEscapePatience = 50ms;
constexpr Duration kLeastPause = 100ms;

struct TopOptions {
  uint64_t job = 0;
  Duration every = 1s;
  uint64_t times = 0;  // 0: until told to end
  bool json = false;
  bool once = false;
};

// ---- on a terminal

class LiveTop {
 public:
  LiveTop(RealWorld& world, Cluster& cluster, const TopOptions& options, Signals& signals,
          FullScreen& full, Stream& input, Stream& output)
      : world_(world),
        cluster_(cluster),
        options_(options),
        data_(cluster),
        model_(options.job),
        signals_(signals),
        full_(full),
        input_(input),
        output_(output),
        looking_(world.clock()),
        drawing_(world.clock()) {}

  // Gives the signal that ended it, or 0.
  Task<int> run();

 private:
  Task<void> read_keys();
  Task<Result<size_t>> read_some(MutableBytes into);
  Task<void> keep_looking();
  Task<void> keep_drawing();
  Task<void> obey_signals();
  Task<void> end_job(uint64_t job);
  Task<void> end_processes(uint64_t job, RangeSet processes);
  void act(const TopAction& action);
  void suspend();
  void measure();
  void look_now() {
    wanted_ = true;
    looking_.ring();
  }
  void tell(std::string words) {
    notice_ = std::move(words);
    drawing_.ring();
  }

  RealWorld& world_;
  Cluster& cluster_;
  TopOptions options_;
  TopData data_;
  TopModel model_;
  Signals& signals_;
  FullScreen& full_;
  Stream& input_;
  Stream& output_;
  Screen screen_;
  KeyDecoder decoder_;
  TopStyle style_;
  std::string notice_;   // what came of a command
  std::string trouble_;  // of the last look
  Alarm looking_;
  Alarm drawing_;
  bool wanted_ = true;  // a look, also in a pause
  Scope* strands_ = nullptr;
  int signal_ = 0;
};

void LiveTop::measure() {
  const TerminalSize size = terminal_size(kStandardOutput);
  style_ = {.columns = size.columns, .rows = size.rows, .colour = wants_colour(kStandardOutput)};
  model_.set_height(table_height(style_));
  screen_.forget();
  drawing_.ring();
}

Task<int> LiveTop::run() {
  measure();
  Scope strands;
  strands_ = &strands;
  strands.spawn(read_keys());
  strands.spawn(keep_looking());
  strands.spawn(keep_drawing());
  strands.spawn(obey_signals());
  (void)co_await strands.join();
  co_await data_.close();
  co_return signal_;
}

Task<Result<size_t>> LiveTop::read_some(MutableBytes into) { co_return co_await input_.read(into); }

Task<void> LiveTop::read_keys() {
  std::array<std::byte, 256> bytes;
  while (true) {
    const Instant patience = decoder_.pending() ? world_.clock().now() + kEscapePatience : kNever;
    Task<Result<size_t>> reading = read_some(bytes);
    auto got = co_await with_deadline(world_.clock(), patience, std::move(reading));
    std::vector<Key> keys;
    if (got && *got > 0) {
      keys = decoder_.feed(as_text(Bytes(bytes).first(*got)));
    } else if (!got && got.error().code() == Code::deadline) {
      keys = decoder_.give_up();
    } else {
      break;  // the terminal is gone, or we are
    }
    for (const Key& key : keys) act(model_.press(key));
    drawing_.ring();
  }
  strands_->cancel();
}

void LiveTop::act(const TopAction& action) {
  notice_.clear();
  switch (action.kind) {
    case TopAction::Kind::none: break;
    case TopAction::Kind::quit: strands_->cancel(); break;
    case TopAction::Kind::suspend: suspend(); break;
    case TopAction::Kind::look: look_now(); break;
    case TopAction::Kind::kill_job: strands_->spawn(end_job(action.job)); break;
    case TopAction::Kind::end_processes:
      strands_->spawn(end_processes(action.job, action.processes));
      break;
  }
}

void LiveTop::suspend() {
  full_.leave();
  Signals::act_by_default(SIGTSTP);
  full_.enter();
  measure();
}

Task<void> LiveTop::end_job(uint64_t job) {
  cluster::KillRequest request;
  request.set_job(job);
  request.set_grace_ns(-1);
  auto killed = co_await cluster_.client->ask(api::kKill, request);
  tell(killed ? fmt::format("job {} is told to end", job) : killed.error().text());
  look_now();
}

Task<void> LiveTop::end_processes(uint64_t job, RangeSet processes) {
  cluster::SignalRequest request;
  request.set_job(job);
  request.set_number(SIGTERM);
  set_pairs(processes, request.mutable_processes());
  auto sent = co_await cluster_.client->ask(api::kSignal, request);
  tell(sent ? fmt::format("sent SIGTERM to {} of job {}", processes.size(), job)
            : sent.error().text());
  look_now();
}

Task<void> LiveTop::keep_looking() {
  uint64_t looks = 0;
  while (true) {
    const bool wanted = std::exchange(wanted_, false);
    Wish wish = model_.wish();
    auto look = co_await data_.look(std::move(wish));
    if (look && (wanted || !model_.paused())) model_.take(std::move(*look));
    if (!look && look.error().code() == Code::cancelled) co_return;
    trouble_ = look ? "" : look.error().text();
    drawing_.ring();
    ++looks;
    if (options_.times != 0 && looks >= options_.times) break;
    do {
      const Instant next = model_.paused() ? kNever : world_.clock().now() + options_.every;
      auto woken = co_await looking_.until(next);
      if (!woken) co_return;
    } while (model_.paused() && !wanted_);
  }
  strands_->cancel();
}

// One frame after the other: a slow terminal sees the newest, and never half of two.
Task<void> LiveTop::keep_drawing() {
  while (true) {
    const std::string& notice = trouble_.empty() ? notice_ : trouble_;
    const std::string bytes = screen_.frame(top_screen(model_, style_, notice));
    if (!bytes.empty()) {
      auto written = co_await output_.write(as_bytes(bytes));
      if (!written) break;
    }
    auto woken = co_await drawing_.until(kNever);
    if (!woken) co_return;
  }
  strands_->cancel();
}

Task<void> LiveTop::obey_signals() {
  while (true) {
    auto number = co_await signals_.next();
    if (!number) co_return;
    if (*number == SIGWINCH) {
      measure();
    } else if (*number == SIGTSTP) {
      suspend();
    } else {
      signal_ = *number;
      strands_->cancel();
      co_return;
    }
  }
}

// ---- for tools, and for once

Json sums_json(const cluster::StatusReply& status) {
  return {{"cluster", status.cluster()},
          {"hosts", {{"alive", status.hosts_alive()}, {"known", status.hosts_known()}}},
          {"slots", {{"all", status.slots()}, {"taken", status.slots_taken()}}},
          {"running_jobs", status.running_jobs()},
          {"queued_jobs", status.queued_jobs()}};
}

Json look_json(const Look& look) {
  constexpr double kNsPerSecond = 1e9;
  Json json = sums_json(look.status);
  json["time"] = static_cast<double>(look.unix_ns) / kNsPerSecond;
  json["jobs"] = Json::array();
  for (const cluster::JobInfo& job : look.jobs) json["jobs"].push_back(job_json(job));
  if (!look.job) return json;
  json["job"] = job_json(*look.job);
  json["processes"] = Json::array();
  for (const auto& [node, processes] : look.hosts)
    for (const SeenProcess& seen : processes) {
      Json process = process_json(seen.info, host_name(look, node));
      process["cpu_percent"] = seen.cpu_percent;
      process["memory_bytes"] = seen.info.memory_bytes();
      json["processes"].push_back(std::move(process));
    }
  json["silent"] = Json::array();
  for (const uint32_t node : look.silent.members()) json["silent"].push_back(host_name(look, node));
  return json;
}

void print_look(const Look& look, const TopOptions& options) {
  if (options.json) {
    fmt::print("{}\n", dump_json(look_json(look)));
    return;
  }
  const bool terminal = is_terminal(kStandardOutput);
  const size_t columns =
      terminal ? terminal_size(kStandardOutput).columns : std::numeric_limits<uint16_t>::max();
  const TopTable table = look.job ? processes_table(look, {}) : jobs_table(look);
  fmt::print("{}",
             top_text(look, table, {.columns = columns, .colour = wants_colour(kStandardOutput)}));
}

Task<Result<int>> print_looks(Cluster& cluster, TopOptions options) {
  TopData data(cluster);
  Result<int> code = 0;
  for (uint64_t i = 0; options.times == 0 || i < options.times; ++i) {
    if (i != 0) {
      auto slept = co_await cluster.world.clock().sleep(options.every);
      if (!slept) break;
    }
    Wish wish{.ended_jobs = false, .job = options.job, .hosts = {}};
    auto look = co_await data.look(std::move(wish));
    if (!look) {
      code = fail(std::move(look).error());
      break;
    }
    print_look(*look, options);
    // Nobody reads any more.
    if (std::fflush(stdout) != 0) break;
  }
  co_await data.close();
  co_return code;
}

// ---- all of it

Result<int> run_live(const TopOptions& options) {
  RealWorld world({.spin = 0s});
  TRY(auto signals, Signals::create(world.loop(), kNumbers));
  TRY(auto cluster, world.run(Cluster::open(world)));
  auto input = open_standard_stream(world.loop(), kStandardInput);
  auto output = open_standard_stream(world.loop(), kStandardOutput);
  Result<int> ended = 0;
  if (!input) ended = fail(input.error());
  if (!output) ended = fail(output.error());
  if (ended) {
    auto full = FullScreen::open();
    if (full) {
      LiveTop live(world, *cluster, options, *signals, **full, **input, **output);
      ended = world.run(live.run());
    } else {
      ended = fail(full.error());
    }
  }
  world.run(cluster->client->close());
  return ended;
}

int live_top(const TopOptions& options) {
  auto ended = run_live(options);
  if (!ended) return complain("top", ended.error());
  if (*ended != 0) Signals::act_by_default(*ended);
  return 0;
}

}  // namespace

int top(int argc, char** argv) {
  Arguments app(
      "Shows the cluster and its jobs, live: `?` lists the keys, `q` leaves.\n"
      "Of a job its roles, their hosts and processes, and what they use.");
  app.name("tutti top");
  TopOptions options;
  std::string every = "1s";
  app.add_option("JOB", options.job, "begin inside this one, see `tutti jobs`");
  app.add_option("--every", every, "how often to look (1s)");
  app.add_option("-n,--times", options.times, "so many looks, then end");
  app.add_flag("--once", options.once, "one look, as text");
  app.add_flag("--json", options.json, "for tools: one object in a line for every look");
  if (const auto code = app.parse(argc, argv)) return *code;
  auto parsed = parse_duration(every);
  if (!parsed) return complain("top", parsed.error(), kCalledWrongly);
  options.every = std::max(*parsed, kLeastPause);
  if (options.once) options.times = 1;
  if (options.json || options.times == 1)
    return with_cluster("top", [&](Cluster& cluster) { return print_looks(cluster, options); });
  if (!is_terminal(kStandardInput) || !is_terminal(kStandardOutput))
    return complain("top",
                    Error(Code::unsupported,
                          "this is no terminal; write `tutti top --once` for one look as text, or "
                          "--json for tools"),
                    kCalledWrongly);
  return live_top(options);
}

}  // namespace tutti::cli
