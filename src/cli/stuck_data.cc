#include "cli/stuck_data.h"

#include <algorithm>

#include "cluster/job_looks.h"
#include "cluster/sparse.h"
#include "world/scope.h"

namespace tutti::cli {
namespace {

// An agent looks twice, and may be busy.
constexpr Duration kAgentPatience = 10s;
// Of hosts asked at once: each is a connection.
constexpr size_t kMostAtOnce = 256;
// Of the kernel's letters, what counts more comes first.
constexpr std::string_view kLetters = "TtDRS";

struct Asking {
  Cluster& cluster;
  cluster::LookRequest request;
  std::vector<cluster::ProcessLook> looks;
  std::vector<std::pair<std::string, std::string>> silent;
};

Task<Result<void>> take_pieces(ApiCaller& agent, Asking& asking, const std::string& host) {
  auto connection = co_await agent.connected();
  if (!connection) co_return fail(std::move(connection).error());
  auto stream = co_await (*connection)->open(api::kAgentLook);
  if (!stream) co_return fail(std::move(stream).error());
  auto sent = co_await stream->send(asking.request);
  if (!sent) co_return sent;
  while (true) {
    auto piece = co_await stream->recv();
    if (!piece) co_return fail(std::move(piece).error());
    if (!*piece) co_return {};
    if ((*piece)->unknown())
      asking.silent.emplace_back(host, "it knows nothing of the job any more");
    for (cluster::ProcessLook& look : *(*piece)->mutable_looks())
      asking.looks.push_back(std::move(look));
  }
}

Task<void> ask_host(Asking& asking, cluster::HostAbout host) {
  auto agent = asking.cluster.client->agent_of(host);
  if (!agent) {
    asking.silent.emplace_back(host.name(), agent.error().text());
    co_return;
  }
  const Instant patience = asking.cluster.world.clock().now() + kAgentPatience;
  Task<Result<void>> taking = take_pieces(**agent, asking, host.name());
  auto taken = co_await with_deadline(asking.cluster.world.clock(), patience, std::move(taking));
  if (!taken) {
    const Code code = taken.error().code();
    asking.silent.emplace_back(host.name(), code == Code::deadline ? "its agent does not answer"
                                            : code == Code::unsupported
                                                ? "its agent is of an earlier version"
                                                : taken.error().text());
  }
  co_await (*agent)->close();
}

char letter_of(const std::string& letters) {
  for (const char letter : kLetters)
    if (letters.find(letter) != std::string::npos) return letter;
  return letters.empty() ? '\0' : letters.front();
}

StuckProcess understand_one(cluster::ProcessLook look) {
  StuckProcess process;
  RankSeen& seen = process.seen;
  seen.rank = look.info().index();
  seen.life = look.info().state() == "exited"     ? RankSeen::Life::ended
              : look.info().state() == "starting" ? RankSeen::Life::starting
                                                  : RankSeen::Life::running;
  seen.moved = look.moved();
  seen.letter = letter_of(look.letters());
  if (look.span_ns() > 0)
    seen.busy = static_cast<double>(look.cpu_ns()) / static_cast<double>(look.span_ns());
  seen.at_ns = look.at_ns();
  process.no_record = look.no_record();
  if (!look.record().empty()) {
    auto bytes = unpack_sparse(as_bytes(look.record()), kMostRecordBytes);
    auto flight = bytes ? read_flight(as_bytes(*bytes)) : Result<SeenFlight>(fail(bytes.error()));
    // A process that has not joined has a record in which nothing is written yet.
    if (flight) seen.flight = std::move(*flight);
    if (!flight && flight.error().code() == Code::unsupported)
      process.no_record = flight.error().message();
  }
  // What it did in an earlier life of the same place is over.
  if (seen.flight && seen.flight->epoch == 0) seen.flight.reset();
  seen.epoch_over = seen.flight && look.aborted() >= seen.flight->epoch;
  look.clear_record();
  process.look = std::move(look);
  return process;
}

}  // namespace

const StuckProcess* SeenRole::find(uint32_t rank) const {
  const auto found = std::ranges::lower_bound(
      processes, rank, {}, [](const StuckProcess& process) { return process.seen.rank; });
  return found == processes.end() || found->seen.rank != rank ? nullptr : &*found;
}

SeenJob understand(cluster::JobInfo info, std::vector<cluster::ProcessLook> looks, bool past) {
  SeenJob job{.info = std::move(info), .past = past};
  std::map<uint32_t, std::string> names;
  for (const cluster::HostAbout& host : job.info.members()) names[host.node()] = host.name();
  std::vector<uint32_t> ends;  // of each role, the number after its last process
  for (const cluster::RoleInfo& role : job.info.roles()) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + role.count());
    job.roles.push_back({.name = role.name(), .count = role.count()});
  }
  for (cluster::ProcessLook& look : looks) {
    const auto end = std::ranges::upper_bound(ends, look.info().process());
    if (end == ends.end()) continue;
    const uint32_t node = look.info().host();
    SeenRole& role = job.roles[static_cast<size_t>(end - ends.begin())];
    StuckProcess& process = role.processes.emplace_back(understand_one(std::move(look)));
    process.host = names.contains(node) ? names[node] : fmt::format("node{}", node);
  }
  for (SeenRole& role : job.roles) {
    // Of a rank that two hosts know, the newer life counts.
    std::ranges::sort(role.processes, {}, [](const StuckProcess& process) {
      return std::pair(process.seen.rank, ~process.look.info().epoch());
    });
    const auto twice = std::ranges::unique(
        role.processes, {}, [](const StuckProcess& process) { return process.seen.rank; });
    role.processes.erase(twice.begin(), twice.end());
    std::vector<RankSeen> ranks;
    for (const StuckProcess& process : role.processes) ranks.push_back(process.seen);
    role.report = find_stuck(ranks, past);
  }
  return job;
}

Task<Result<SeenJob>> ask_stuck(Cluster& cluster, StuckRequest request) {
  cluster::JobRequest which;
  which.set_job(request.job);
  auto info = co_await cluster.client->ask(api::kJob, std::move(which));
  if (!info) co_return fail(std::move(info).error());
  const auto elsewhere = [&](const cluster::HostAbout& host) {
    return host.name() != cluster.machine.name;
  };
  if (std::ranges::any_of(info->members(), elsewhere))
    CO_TRY_DO(co_await cluster.load_certificate());
  Asking asking{.cluster = cluster};
  asking.request.set_job(request.job);
  asking.request.set_ended(request.ended);
  asking.request.set_whole(request.history);
  for (int next = 0; next < info->members_size();) {
    Scope hosts;
    for (size_t i = 0; i < kMostAtOnce && next < info->members_size(); ++i, ++next)
      hosts.spawn(ask_host(asking, info->members(next)));
    (void)co_await hosts.join();
  }
  const bool past = request.ended || info->state() >= cluster::SUCCEEDED;
  SeenJob job = understand(std::move(*info), std::move(asking.looks), past);
  job.silent = std::move(asking.silent);
  co_return job;
}

}  // namespace tutti::cli
