#include "cli/status.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/arguments.h"
#include "cli/cluster.h"
#include "cli/job_words.h"
#include "cli/table.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

std::string state_of(const cluster::HostStatus& host) {
  if (host.alive()) return "alive";
  return host.away_for_ns() != 0 ? "away" : "lost";
}

void print_status(const cluster::StatusReply& status, const Machine& machine, int64_t now) {
  fmt::print("cluster {}, version {}; up for {}; {} running, {} queued\n", status.cluster(),
             status.version(), age_text(now, status.up_since_unix_ns()), status.running_jobs(),
             status.queued_jobs());
  fmt::print("the head is at {}\n\n", machine.head_api);
  Table table({"NODE", "HOST", "STATE", "SLOTS", "FREE", "ADDRESS", "VERSION"});
  for (const cluster::HostStatus& host : status.hosts())
    table.add({fmt::format("{}", host.node()), host.name(), state_of(host),
               fmt::format("{}", host.slots()), host.alive() ? fmt::format("{}", host.free()) : "-",
               host.address(), host.version()});
  fmt::print("{}", table.text(wants_colour(kStandardOutput)));
  for (const cluster::HostStatus& host : status.hosts())
    for (const cluster::Leftover& leftover : host.leftovers())
      fmt::print("\n{}: job {} is over, but {}; its slots are free when they are gone\n",
                 host.name(), leftover.job(), leftover.what());
  for (const cluster::HostStatus& host : status.hosts())
    if (host.away_for_ns() != 0)
      fmt::print(
          "\n{}: its agent said that it comes back; what runs there goes on, and is given up "
          "in {} if it does not\n",
          host.name(), format_duration(Duration(host.away_for_ns())));
  for (const cluster::Twin& twin : status.twins())
    fmt::print(
        "\n{}: another agent with its certificate was refused, {} time{}, the last {} ago; if "
        "nobody "
        "copied its folder by mistake, the certificate was stolen (docs/security.md)\n",
        twin.name(), twin.times(), twin.times() == 1 ? "" : "s",
        age_text(now, twin.last_unix_ns()));
}

Task<Result<int>> show_status(Cluster& cluster, bool json) {
  auto status = co_await cluster.client->ask(api::kStatus, cluster::StatusRequest());
  if (!status) co_return fail(std::move(status).error());
  if (!json) {
    print_status(*status, cluster.machine, cluster.world.clock().unix_ns());
    co_return 0;
  }
  fmt::print("{}\n", dump_json(status_json(*status, cluster.machine.head_api)));
  co_return 0;
}

Task<Result<int>> forget_host(Cluster& cluster, std::string host, bool json) {
  cluster::ForgetRequest request;
  request.set_host(host);
  auto forgotten = co_await cluster.client->ask(api::kForget, std::move(request));
  if (!forgotten) co_return fail(std::move(forgotten).error());
  if (json) {
    fmt::print("{}\n", dump_json({{"forgotten", host}}));
  } else {
    fmt::print("{} is forgotten; should its agent come back, it is known again\n", host);
  }
  co_return 0;
}

}  // namespace

int forget(int argc, char** argv) {
  Arguments app(
      "Removes a host that has left for good from the cluster's list: its slots count no more.");
  app.name("tutti forget");
  std::string host;
  bool json = false;
  app.add_option("HOST", host, "its name, see `tutti status`").required();
  app.add_flag("--json", json, "for tools");
  if (const auto code = app.parse(argc, argv)) return *code;
  return with_cluster("forget", [&](Cluster& cluster) { return forget_host(cluster, host, json); });
}

int status(int argc, char** argv) {
  Arguments app("Shows the cluster this machine is in, and its hosts.");
  app.name("tutti status");
  bool json = false;
  app.add_flag("--json", json, "for tools");
  if (const auto code = app.parse(argc, argv)) return *code;
  return with_cluster("status", [&](Cluster& cluster) { return show_status(cluster, json); });
}

}  // namespace tutti::cli
