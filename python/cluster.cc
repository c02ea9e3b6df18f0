// Asks the cluster what the verbs of the command ask it, and gives the JSON that they print. What a
// job prints comes in batches, taken by one call after the other from a strand that follows it.
#include "cluster.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/cluster.h"
#include "cli/cluster_run.h"
#include "cli/job_filter.h"
#include "cli/job_processes.h"
#include "cli/job_words.h"
#include "cli/stuck_words.h"
#include "cluster/job_layout.h"
#include "cluster/verdict.h"
#include "loop_thread.h"
#include "raise.h"
#include "wire/failure.h"
#include "world/real/this_process.h"

namespace nb = nanobind;

namespace {

using namespace tutti;
using cli::Cluster;

// Of what a job prints: so much waits for Python before the job's pipes fill.
constexpr size_t kMostPieces = 64;

struct Piece {
  uint32_t process;
  RankStream stream;
  std::string bytes;
};

class Patient final : public JobListener {
 public:
  void on_change(const cluster::JobInfo&) override {}
  void on_head_away(const Error&) override {}
};

// With the head there when the question begins: else the error is the command's.
template <class T>
Task<Result<T>> when_reached(Cluster& cluster, std::function<Task<Result<T>>(Cluster&)> make) {
  auto reached = co_await cluster.reach();
  if (!reached) co_return fail(std::move(reached).error());
  Task<Result<T>> asking = make(cluster);
  co_return co_await std::move(asking);
}

// ---- what is asked; plain coroutines, arguments by value

Task<void> close_cluster(std::unique_ptr<Cluster>& cluster) {
  co_await cluster->client->close();
  cluster.reset();
}

Task<Result<bool>> open_cluster(LoopThread& loop, World& world, std::unique_ptr<Cluster>& into) {
  auto cluster = co_await Cluster::open(world);
  if (!cluster) co_return fail(std::move(cluster).error());
  into = std::move(*cluster);
  loop.at_end([&into] { return close_cluster(into); });
  co_return true;
}

Task<Result<std::string>> ask_status(Cluster& cluster) {
  auto status = co_await cluster.client->ask(api::kStatus, cluster::StatusRequest());
  if (!status) co_return fail(std::move(status).error());
  co_return dump_json(cli::status_json(*status, cluster.machine.head_api));
}

Task<Result<std::string>> ask_jobs(Cluster& cluster, cli::JobFilter filter) {
  CO_TRY(auto request, cli::request_of(filter, cluster.world.clock().unix_ns()));
  auto reply = co_await cluster.client->ask(api::kJobs, request);
  if (!reply) co_return fail(std::move(reply).error());
  Json list = Json::array();
  for (const cluster::JobInfo& job : reply->jobs()) list.push_back(cli::job_json(job));
  co_return dump_json(list);
}

Task<Result<cluster::JobInfo>> ask_info(Cluster& cluster, uint64_t job) {
  cluster::JobRequest request;
  request.set_job(job);
  co_return co_await cluster.client->ask(api::kJob, request);
}

Task<Result<std::string>> ask_job(Cluster& cluster, uint64_t job) {
  auto info = co_await ask_info(cluster, job);
  if (!info) co_return fail(std::move(info).error());
  Json json = cli::job_json(*info);
  json["roles"] = Json::array();
  for (const cluster::RoleInfo& role : info->roles())
    json["roles"].push_back({{"name", role.name()}, {"count", role.count()}});
  co_return dump_json(json);
}

Task<Result<std::string>> ask_processes(Cluster& cluster, uint64_t job) {
  auto info = co_await ask_info(cluster, job);
  if (!info) co_return fail(std::move(info).error());
  cluster::PsRequest request;
  request.set_job(job);
  request.set_usage(true);
  auto reply = co_await cluster.client->ask(api::kPs, request);
  if (!reply) co_return fail(std::move(reply).error());
  Json list = Json::array();
  for (const cluster::HostInfo& host : reply->hosts()) {
    std::string name = fmt::format("node{}", host.host());
    for (const cluster::HostAbout& member : info->members())
      if (member.node() == host.host()) name = member.name();
    for (const cluster::ProcessInfo& process : host.processes()) {
      Json json = cli::process_json(process, name);
      json["cpu_seconds"] = to_seconds(Duration(process.cpu_ns()));
      json["memory_bytes"] = process.memory_bytes();
      list.push_back(std::move(json));
    }
  }
  co_return dump_json(list);
}

Task<Result<std::string>> ask_what_waits(Cluster& cluster, cli::StuckRequest request) {
  auto job = co_await cli::ask_stuck(cluster, request);
  if (!job) co_return fail(std::move(job).error());
  co_return dump_json(cli::stuck_json(*job));
}

Task<Result<uint64_t>> submit_job(Cluster& cluster, std::string text, std::string file_name,
                                  std::string folder) {
  CO_TRY(const uint64_t open_files, allow_open_files(0));
  cli::RunOptions options;
  options.folder = std::move(folder);
  CO_TRY(job::Spec spec,
         cli::make_job_of_text(cluster.world, text, file_name, options, open_files));
  cluster::SubmitRequest request;
  *request.mutable_spec() = std::move(spec);
  auto reply = co_await cluster.client->ask(api::kSubmit, std::move(request));
  if (!reply) co_return fail(std::move(reply).error());
  co_return reply->job();
}

// Until it is over; nothing is never.
Task<Result<std::string>> wait_for(Cluster& cluster, uint64_t job,
                                   std::optional<Duration> patience) {
  Patient listener;
  const Instant at = patience ? cluster.world.clock().now() + *patience : kNever;
  Task<Result<cluster::JobInfo>> watching = cluster.client->watch(job, listener);
  auto info = co_await with_deadline(cluster.world.clock(), at, std::move(watching));
  if (!info && info.error().code() == Code::deadline && patience)
    co_return fail(Code::deadline, "job {} is not over after {}; it goes on", job,
                   format_duration(*patience));
  if (!info) co_return fail(std::move(info).error());
  co_return dump_json(cli::job_json(*info));
}

Task<Result<bool>> kill_job(Cluster& cluster, uint64_t job, std::optional<Duration> grace) {
  cluster::KillRequest request;
  request.set_job(job);
  request.set_grace_ns(grace ? to_ns(*grace) : -1);
  auto killed = co_await cluster.client->ask(api::kKill, request);
  if (!killed) co_return fail(std::move(killed).error());
  co_return true;
}

Task<Result<bool>> send_signal(Cluster& cluster, uint64_t job, std::string signal,
                               std::string processes) {
  cluster::SignalRequest request;
  request.set_job(job);
  CO_TRY(const int number, cli::parse_signal(signal));
  request.set_number(number);
  if (!processes.empty()) {
    auto info = co_await ask_info(cluster, job);
    if (!info) co_return fail(std::move(info).error());
    CO_TRY(const RangeSet set, cli::parse_processes(processes, *info));
    set_pairs(set, request.mutable_processes());
  }
  auto sent = co_await cluster.client->ask(api::kSignal, request);
  if (!sent) co_return fail(std::move(sent).error());
  co_return true;
}

std::vector<std::string> labels_of(const cluster::JobInfo& job) {
  std::vector<std::string> labels;
  const bool one_gang = job.roles_size() == 1 && job.roles(0).kind() == job::Role::GANG;
  for (uint32_t process = 0; !one_gang && process < job.processes(); ++process)
    labels.push_back(cli::process_name(process, job));
  return labels;
}

// What the command says at the end of a run: the job is watched once more, from its beginning.
Task<Result<std::string>> make_verdict(Cluster& cluster, uint64_t job) {
  auto info = co_await ask_info(cluster, job);
  if (!info) co_return fail(std::move(info).error());
  cli::OutputSink nowhere(nullptr, false);
  cli::GangPrinter printer(info->processes(), cli::PrintStyle::raw, nowhere, nowhere);
  Channel<int> signals(1);
  Scope writing;
  writing.spawn(nowhere.write_all());
  GangReport report = co_await cli::watch_on_cluster(cluster, *info, printer, signals);
  writing.cancel();
  (void)co_await writing.join();
  auto over = co_await ask_info(cluster, job);
  if (!over) co_return fail(std::move(over).error());
  report.elapsed = Duration(over->ended_unix_ns() - over->submitted_unix_ns());
  VerdictOptions style{.grace = Duration(over->grace_ns()), .labels = labels_of(*over)};
  if (over->timeout_ns() > 0) style.timeout = Duration(over->timeout_ns());
  co_return verdict_text(report, printer.tails(), style);
}

// ---- what a job prints

class Follower final : public cli::JobViewer {
 public:
  void on_started(uint32_t, pid_t, bool) override {}
  Task<Result<void>> on_output(uint32_t process, RankStream stream, Bytes bytes) override {
    Piece piece{process, stream, std::string(as_text(bytes))};
    co_return co_await pieces.send(std::move(piece));
  }
  void on_exit(uint32_t, const RankReport&) override {}
  void on_ending(const GangReport&) override {}
  bool broken() const override { return false; }
  void print_notice(std::string_view) override {}
  // Whoever waits for the next piece must not wait for the end of the job.
  void on_denied(const Error& why) override {
    denied = why;
    if (scope != nullptr) scope->cancel();
  }
  void on_output_missing(const std::string& host, const RangeSet& processes,
                         const Error& why) override {
    missing.push_back(cli::missing_output_text(host, processes, labels, why));
  }

  std::vector<std::string> labels;   // of processes; none when they are ranks of one gang
  std::vector<std::string> missing;  // of what it printed, in words
  std::optional<Error> denied;
  Channel<Piece> pieces{kMostPieces};
  Channel<int> signals{1};
  Scope* scope = nullptr;  // while it follows
};

Task<void> watch_all(Cluster& cluster, cluster::JobInfo info, Follower& follower) {
  (void)co_await cli::watch_on_cluster(cluster, std::move(info), follower, follower.signals);
}

Task<void> follow(Cluster& cluster, cluster::JobInfo info, std::shared_ptr<Follower> follower) {
  Scope scope;
  follower->scope = &scope;
  scope.spawn(watch_all(cluster, std::move(info), *follower));
  (void)co_await scope.join();
  follower->scope = nullptr;
  follower->pieces.close();
}

Task<Result<std::shared_ptr<Follower>>> begin_following(LoopThread& loop, Cluster& cluster,
                                                        uint64_t job) {
  auto info = co_await ask_info(cluster, job);
  if (!info) co_return fail(std::move(info).error());
  auto follower = std::make_shared<Follower>();
  follower->labels = labels_of(*info);
  loop.spawn(follow(cluster, std::move(*info), follower));
  co_return follower;
}

// No pieces: it is over.
Task<Result<std::vector<Piece>>> take_pieces(std::shared_ptr<Follower> follower) {
  std::vector<Piece> pieces;
  auto first = co_await follower->pieces.recv();
  if (!first && follower->denied) co_return fail(*follower->denied);
  if (!first && first.error().code() == Code::unavailable) co_return pieces;
  if (!first) co_return fail(std::move(first).error());
  pieces.push_back(std::move(*first));
  while (auto next = follower->pieces.try_recv()) pieces.push_back(std::move(*next));
  co_return pieces;
}

Task<Result<std::vector<std::string>>> what_is_missing(std::shared_ptr<Follower> follower) {
  co_return follower->missing;
}

Task<Result<bool>> stop_following(std::shared_ptr<Follower> follower) {
  if (follower->scope != nullptr) follower->scope->cancel();
  co_return true;
}

// ---- as Python has them

class Output {
 public:
  Output(LoopThread& loop, std::shared_ptr<Follower> follower)
      : loop_(loop), follower_(std::move(follower)) {}

  // (process, 1 or 2, bytes) of each piece; no bytes are the end of that stream.
  nb::list next() {
    const auto pieces = value_or_raise(loop_.call<std::vector<Piece>>(
        [follower = follower_](World&) { return take_pieces(follower); }));
    nb::list list;
    for (const Piece& piece : pieces)
      list.append(nb::make_tuple(piece.process, piece.stream == RankStream::output ? 1 : 2,
                                 nb::bytes(piece.bytes.data(), piece.bytes.size())));
    return list;
  }
  // What may not have come, when it is over.
  std::vector<std::string> missing() {
    return value_or_raise(loop_.call<std::vector<std::string>>(
        [follower = follower_](World&) { return what_is_missing(follower); }));
  }
  void close() {
    (void)loop_.call<bool>([follower = follower_](World&) { return stop_following(follower); });
  }

 private:
  LoopThread& loop_;  // of the door, which it keeps alive
  std::shared_ptr<Follower> follower_;
};

std::optional<Duration> duration_of(std::optional<double> seconds) {
  if (!seconds) return {};
  if (!(*seconds >= 0 && *seconds < 3e9))
    raise(Error(Code::invalid, fmt::format("{} is not a number of seconds", *seconds)));
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
}

class Door {
 public:
  Door() {
    value_or_raise(
        loop_.call<bool>([this](World& world) { return open_cluster(loop_, world, cluster_); }));
  }

  void close() { loop_.stop(); }
  std::string status() {
    return ask<std::string>([](Cluster& cluster) { return ask_status(cluster); });
  }
  std::string jobs(bool all, const std::string& states, const std::string& user,
                   const std::string& name, const std::string& since,
                   std::optional<int64_t> limit) {
    cli::JobFilter filter{.all = all, .user = user, .name = name, .since = since, .limit = limit};
    if (!states.empty()) filter.states.push_back(states);
    return ask<std::string>([=](Cluster& cluster) { return ask_jobs(cluster, filter); });
  }
  std::string job(uint64_t job) {
    return ask<std::string>([=](Cluster& cluster) { return ask_job(cluster, job); });
  }
  std::string processes(uint64_t job) {
    return ask<std::string>([=](Cluster& cluster) { return ask_processes(cluster, job); });
  }
  std::string stuck(uint64_t job, bool ended) {
    const cli::StuckRequest request{.job = job, .ended = ended, .history = true};
    return ask<std::string>([=](Cluster& cluster) { return ask_what_waits(cluster, request); });
  }
  uint64_t submit(const std::string& text, const std::string& file_name,
                  const std::string& folder) {
    return ask<uint64_t>(
        [=](Cluster& cluster) { return submit_job(cluster, text, file_name, folder); });
  }
  std::string wait(uint64_t job, std::optional<double> timeout) {
    const auto patience = duration_of(timeout);
    return ask<std::string>([=](Cluster& cluster) { return wait_for(cluster, job, patience); });
  }
  void kill(uint64_t job, std::optional<double> grace) {
    const auto longest = duration_of(grace);
    ask<bool>([=](Cluster& cluster) { return kill_job(cluster, job, longest); });
  }
  void signal(uint64_t job, const std::string& signal, const std::string& processes) {
    ask<bool>([=](Cluster& cluster) { return send_signal(cluster, job, signal, processes); });
  }
  std::string verdict(uint64_t job) {
    return ask<std::string>([=](Cluster& cluster) { return make_verdict(cluster, job); });
  }
  Output* output(uint64_t job) {
    return new Output(loop_, ask<std::shared_ptr<Follower>>([=, this](Cluster& cluster) {
                        return begin_following(loop_, cluster, job);
                      }));
  }

 private:
  template <class T>
  T ask(std::function<Task<Result<T>>(Cluster&)> make) {
    auto answer = loop_.call<T>([&](World&) { return when_reached<T>(*cluster_, make); });
    if (!answer) raise(wire::as_said(answer.error()));
    return *std::move(answer);
  }

  std::unique_ptr<Cluster> cluster_;  // of the loop's thread
  LoopThread loop_;
};

}  // namespace

void bind_cluster(nb::module_& module) {
  nb::class_<Output>(module, "Output", "What a job prints, as tutti.cluster reads it.")
      .def("next", &Output::next)
      .def("missing", &Output::missing)
      .def("close", &Output::close);
  nb::class_<Door>(module, "Door", "The cluster, as tutti.cluster uses it; answers are JSON.")
      .def(nb::init<>())
      .def("close", &Door::close)
      .def("status", &Door::status)
      .def("jobs", &Door::jobs, nb::arg("all"), nb::arg("states"), nb::arg("user"), nb::arg("name"),
           nb::arg("since"), nb::arg("limit").none())
      .def("job", &Door::job, nb::arg("job"))
      .def("processes", &Door::processes, nb::arg("job"))
      .def("stuck", &Door::stuck, nb::arg("job"), nb::arg("ended"))
      .def("submit", &Door::submit, nb::arg("text"), nb::arg("file_name"), nb::arg("folder"))
      .def("wait", &Door::wait, nb::arg("job"), nb::arg("timeout").none())
      .def("kill", &Door::kill, nb::arg("job"), nb::arg("grace").none())
      .def("signal", &Door::signal, nb::arg("job"), nb::arg("signal"), nb::arg("processes"))
      .def("verdict", &Door::verdict, nb::arg("job"))
      .def("output", &Door::output, nb::arg("job"), nb::keep_alive<0, 1>());
}
