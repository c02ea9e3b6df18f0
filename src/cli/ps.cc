// tutti ps: job, role, host, and the processes there; those that are alike in one row.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "base/range_set.h"
#include "cli/arguments.h"
#include "cli/cluster.h"
#include "cli/job_words.h"
#include "cli/status.h"
#include "cli/table.h"
#include "cluster/job_layout.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

// Of more, the first and the last are shown.
constexpr size_t kMostPids = 8;

struct Likeness {
  bool spare = false;  // after those that have ranks
  std::string state;
  uint64_t step = 0;
  std::string health;
  auto operator<=>(const Likeness&) const = default;
};
struct Alike {
  RangeSet ranks;
  std::vector<int64_t> pids;
};
using Rows = std::map<Likeness, Alike>;
using Hosts = std::map<uint32_t, Rows>;
using Roles = std::map<std::pair<uint32_t, std::string>, Hosts>;  // by their first process

std::string pids_text(const std::vector<int64_t>& pids) {
  if (pids.size() <= kMostPids) return fmt::format("{}", fmt::join(pids, " "));
  return fmt::format("{} … {} ({} of them)", pids.front(), pids.back(), pids.size());
}

struct Shown {
  std::map<uint64_t, Roles> jobs;
  std::map<uint64_t, cluster::JobInfo> infos;
  std::map<uint32_t, std::string> names;  // of hosts

  std::string name_of(uint32_t host) const {
    const auto found = names.find(host);
    return found == names.end() ? fmt::format("node{}", host) : found->second;
  }
};

void add(Shown& shown, const cluster::ProcessInfo& process) {
  Roles& roles = shown.jobs[process.job()];
  const uint32_t first = process.process() - process.index();
  const std::string state = process.state() + (process.from_spare() ? ", was a spare" : "");
  const Likeness likeness{process.spare(), state, process.step(), process.health()};
  Alike& alike = roles[{first, process.role()}][process.host()][likeness];
  if (!process.spare()) alike.ranks.add(process.index());
  alike.pids.push_back(process.pid());
}

// "2 spares ready" in the place of a state.
std::string state_text(const Likeness& likeness, const Alike& alike) {
  if (!likeness.spare && likeness.health.empty()) return likeness.state;
  if (!likeness.spare) return fmt::format("{}, {}", likeness.state, likeness.health);
  const size_t count = alike.pids.size();
  return fmt::format("{} spare{} {}", count, count == 1 ? "" : "s", likeness.state);
}

void print_tree(const Shown& shown) {
  const bool colour = wants_colour(kStandardOutput);
  for (const auto& [id, roles] : shown.jobs) {
    const auto info = shown.infos.find(id);
    const std::string title = fmt::format(
        "job {}{}", id,
        info == shown.infos.end()
            ? ""
            : fmt::format(" {} ({})", info->second.name(), state_name(info->second.state())));
    fmt::print(fmt::runtime(colour ? "\033[1m{}\033[0m\n" : "{}\n"), title);
    for (const auto& [role, hosts] : roles) {
      fmt::print("  {}\n", role.second);
      Table table({"    HOST", "RANKS", "STATE", "STEP", "PIDS"});
      for (const auto& [host, rows] : hosts)
        for (const auto& [likeness, alike] : rows)
          table.add({"    " + shown.name_of(host), likeness.spare ? "-" : alike.ranks.text(),
                     state_text(likeness, alike),
                     likeness.step == 0 ? "-" : fmt::format("{}", likeness.step),
                     pids_text(alike.pids)});
      fmt::print("{}", table.text(colour));
    }
  }
}

// What nobody could ask is not left out.
void print_unknown(const Shown& shown, const cluster::PsReply& reply, std::FILE* to) {
  const RangeSet silent = set_from(reply.silent()).value_or(RangeSet());
  for (const cluster::PsReply::Away& away : reply.away())
    fmt::print(to, "{}: {}; what it has of job{} {} is not known\n", shown.name_of(away.host()),
               silent.contains(away.host()) ? "did not answer in time"
                                            : "away, or not back at the head yet",
               away.jobs_size() == 1 ? "" : "s", fmt::join(away.jobs(), ", "));
}

Task<Result<int>> show_processes(Cluster& cluster, uint64_t job, bool json) {
  cluster::PsRequest request;
  request.set_job(job);
  auto reply = co_await cluster.client->ask(api::kPs, std::move(request));
  if (!reply) co_return fail(std::move(reply).error());
  auto status = co_await cluster.client->ask(api::kStatus, cluster::StatusRequest());
  if (!status) co_return fail(std::move(status).error());
  auto jobs = co_await cluster.client->ask(api::kJobs, cluster::JobsRequest());
  if (!jobs) co_return fail(std::move(jobs).error());
  Shown shown;
  for (const cluster::HostStatus& host : status->hosts()) shown.names[host.node()] = host.name();
  for (const cluster::JobInfo& info : jobs->jobs()) shown.infos[info.job()] = info;
  Json list = Json::array();
  for (const cluster::HostInfo& host : reply->hosts()) {
    for (const cluster::ProcessInfo& process : host.processes()) {
      add(shown, process);
      if (json) list.push_back(process_json(process, shown.name_of(process.host())));
    }
  }
  if (json) {
    fmt::print("{}\n", dump_json(list));
    print_unknown(shown, *reply, stderr);
    co_return 0;
  }
  print_tree(shown);
  for (const cluster::HostInfo& host : reply->hosts())
    for (const cluster::Leftover& leftover : host.leftovers())
      fmt::print("{}: of job {}, {}\n", shown.name_of(host.host()), leftover.job(),
                 leftover.what());
  print_unknown(shown, *reply, stdout);
  if (shown.jobs.empty() && reply->away().empty()) fmt::print("nothing runs\n");
  co_return 0;
}

}  // namespace

int ps(int argc, char** argv) {
  Arguments app("Shows what runs on the cluster: jobs, their roles, hosts and processes.");
  app.name("tutti ps");
  uint64_t job = 0;
  bool json = false;
  app.add_option("JOB", job, "only this one, see `tutti jobs`");
  app.add_flag("--json", json, "for tools");
  if (const auto code = app.parse(argc, argv)) return *code;
  return with_cluster("ps", [&](Cluster& cluster) { return show_processes(cluster, job, json); });
}

}  // namespace tutti::cli
