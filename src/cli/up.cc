#include "cli/up.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>

#include "cli/arguments.h"
#include "cli/cluster.h"
#include "cli/complain.h"
#include "cli/daemon.h"
#include "cli/programs.h"
#include "cluster/keeper_client.h"
#include "wire/authority_folder.h"
#include "world/real/background.h"

namespace tutti::cli {
namespace {

constexpr Duration kEndPatience = 20s;

struct UpOptions {
  std::optional<uint32_t> slots;
  std::optional<uint32_t> fan_out;
  std::string name;
  std::string listen;
};

// What the machine was before, with what is said anew.
Task<Result<Machine>> machine_for(World& world, const Home& home, const UpOptions& options) {
  auto before = co_await load_machine(world, home);
  if (!before && before.error().code() != Code::not_found) co_return before;
  Machine machine = before.value_or(Machine());
  if (!before) {
    machine.has_head = true;
    machine.user = own_user_name(world);
    machine.name = world.host_name();
    machine.listen = "127.0.0.1:0";
    auto authority = co_await wire::open_authority(world, home.cluster_folder(), "");
    if (!authority) co_return fail(std::move(authority).error());
    machine.cluster = authority->cluster();
  }
  if (options.slots) machine.slots = *options.slots;
  if (options.fan_out) machine.fan_out = *options.fan_out;
  if (options.fan_out && !machine.has_head)
    co_return fail(Code::invalid, "--fan-out is said where the head is; this machine only joined");
  if (!options.name.empty()) machine.name = options.name;
  CO_TRY_DO(wire::check_name("name", machine.name));
  if (!options.listen.empty() && options.listen != machine.listen) {
    CO_TRY(const Address address, Address::parse(options.listen));
    machine.listen = address.text();
    if (machine.has_head) machine.head_api = machine.head_tree = "";
  }
  co_return machine;
}

bool anything_runs(const Home& home) {
  return running_program(home.pid_file("head")) || running_program(home.pid_file("agent"));
}

// What was said and did not work must not be in the way of the next try.
Task<void> undo(World& world, const Home& home, std::optional<Machine> before) {
  if (anything_runs(home)) co_return;
  if (before) {
    (void)co_await save_machine(world, home, std::move(*before));
  } else {
    const std::string file = home.machine_file();
    (void)co_await world.disk().remove(file);
  }
}

Task<Result<void>> start_programs(RealWorld& world, const Home& home, bool has_head) {
  if (has_head) {
    auto head = co_await start_program(world, home, "head");
    if (!head) co_return fail(std::move(head).error());
  }
  auto agent = co_await start_program(world, home, "agent");
  if (!agent) co_return fail(std::move(agent).error());
  co_return {};
}

Task<Result<void>> start_all(RealWorld& world, const Home& home, const UpOptions& options) {
  CO_TRY_DO(home.make());
  auto known = co_await load_machine(world, home);
  std::optional<Machine> before;
  if (known) before = std::move(*known);
  auto machine = co_await machine_for(world, home, options);
  if (!machine) co_return fail(std::move(machine).error());
  if (!anything_runs(home)) {
    Machine saved = *machine;
    CO_TRY_DO(co_await save_machine(world, home, std::move(saved)));
  } else if (options.slots || options.fan_out || !options.name.empty() || !options.listen.empty()) {
    co_return fail(Code::exists,
                   "it runs already, and what it is changes only when it starts; end it with "
                   "`tutti down --keep-jobs` first");
  }
  if (machine->has_head) {
    wire::IssueOptions user{
        .role = wire::Role::user, .name = machine->user, .lifetime_s = kProgramLifetime_s};
    auto certificate = co_await wire::obtain_certificate(world, home.cluster_folder(),
                                                         machine->cluster, std::move(user));
    if (!certificate) co_return fail(std::move(certificate).error());
  }
  auto started = co_await start_programs(world, home, machine->has_head);
  if (!started) {
    co_await undo(world, home, std::move(before));
    co_return started;
  }
  co_return co_await wait_until_member(world, home);
}

Task<Result<void>> tell_state(World& world) {
  auto cluster = co_await Cluster::open(world);
  if (!cluster) co_return fail(std::move(cluster).error());
  auto status = co_await (*cluster)->client->ask(api::kStatus, cluster::StatusRequest());
  co_await (*cluster)->client->close();
  if (!status) co_return fail(std::move(status).error());
  uint32_t slots = 0;
  int alive = 0;
  for (const cluster::HostStatus& host : status->hosts()) {
    if (!host.alive()) continue;
    slots += host.slots();
    ++alive;
  }
  fmt::print("cluster {} is up: {} host{}, {} slots\n\n", status->cluster(), alive,
             alive == 1 ? "" : "s", slots);
  fmt::print("  tutti run -n {} -- COMMAND    run something on it\n", std::max(1U, slots));
  fmt::print("  tutti status                 see its hosts\n");
  if ((*cluster)->machine.has_head)
    fmt::print("  tutti token                  let another machine join\n");
  fmt::print("  tutti down                   end it\n");
  co_return {};
}

Task<Result<void>> end_jobs(Cluster& cluster) {
  auto jobs = co_await cluster.client->ask(api::kJobs, cluster::JobsRequest());
  if (!jobs) co_return fail(std::move(jobs).error());
  for (const cluster::JobInfo& job : jobs->jobs()) {
    cluster::KillRequest request;
    request.set_job(job.job());
    request.set_grace_ns(-1);
    auto killed = co_await cluster.client->ask(api::kKill, std::move(request));
    if (!killed) co_return fail(std::move(killed).error());
  }
  struct Nobody final : JobListener {
    void on_change(const cluster::JobInfo&) override {}
    void on_head_away(const Error&) override {}
  } nobody;
  for (const cluster::JobInfo& job : jobs->jobs()) {
    auto over = co_await cluster.client->watch(job.job(), nobody);
    if (!over) co_return fail(std::move(over).error());
    fmt::print("ended job {} ({})\n", job.job(), job.name());
  }
  co_return {};
}

// Keepers linger when their agent ends; those that have nothing to keep must not.
Task<Result<void>> end_keepers(World& world, const Home& home, bool keep_jobs) {
  const std::string folder = home.agent_folder() + "/keepers";
  auto names = co_await world.disk().list(folder);
  if (!names) co_return {};
  for (const std::string& name : *names) {
    const std::string path = fmt::format("{}/{}", folder, name);
    auto keeper = co_await connect_keeper(world, path);
    if (!keeper) {
      (void)co_await world.disk().remove(path);
      continue;
    }
    if (keep_jobs && !keeper->things.ranks.empty()) continue;
    auto told = co_await keeper->client->shutdown();
    if (!told) co_return told;
    const auto pid = static_cast<pid_t>(keeper->client->welcome().pid());
    if (!ends_within(pid, kEndPatience))
      co_return fail(Code::deadline, "keeper {} does not end; what it keeps: ps --ppid {}", pid,
                     pid);
  }
  co_return {};
}

// An agent of a version that cannot leave for a while would die of being told to.
int leaving_signal(const Home& home) {
  const auto agent = running_program(home.pid_file("agent"));
  return agent && expects_signal(*agent, kLeaveForAWhile) ? kLeaveForAWhile : SIGTERM;
}

Task<Result<void>> end_all(World& world, const Home& home, bool keep_jobs) {
  auto machine = co_await load_machine(world, home);
  if (!machine && machine.error().code() == Code::not_found) co_return {};
  if (!machine) co_return fail(std::move(machine).error());
  if (!keep_jobs && machine->has_head) {
    auto cluster = co_await Cluster::open(world);
    if (cluster) {
      auto ended = co_await end_jobs(**cluster);
      co_await (*cluster)->client->close();
      if (!ended) co_return ended;
    }
  }
  const int first = keep_jobs ? leaving_signal(home) : SIGTERM;
  CO_TRY_DO(end_program(home.pid_file("agent"), kEndPatience, first));
  auto ended = co_await end_keepers(world, home, keep_jobs);
  if (!ended) co_return ended;
  co_return end_program(home.pid_file("head"), kEndPatience);
}

}  // namespace

int up(int argc, char** argv) {
  Arguments app(
      "Starts a cluster on this machine, in the background: a head and an agent.\n"
      "Started already, it is left as it is.");
  app.name("tutti up");
  UpOptions options;
  app.add_option("--slots", options.slots, "processes at a time (as many as it has cores)")
      .between(1, kMostSlots);
  app.add_option(
         "--fan-out", options.fan_out,
         "neighbours below each node of the tree of agents (32; 8 where jobs carry megabytes)")
      .between(1, 1024);
  app.add_option("--name", options.name,
                 "what this machine is called in the cluster (its host name)");
  app.add_option("--listen", options.listen,
                 "ADDR:PORT where others reach this machine (127.0.0.1 and any port)");
  if (const auto code = app.parse(argc, argv)) return *code;
  auto home = Home::open();
  if (!home) return complain("up", home.error());
  RealWorld world({.spin = 0s});
  auto started = world.run(start_all(world, *home, options));
  if (!started) return complain("up", started.error());
  auto told = world.run(tell_state(world));
  if (!told) return complain("up", told.error());
  return 0;
}

int down(int argc, char** argv) {
  Arguments app("Ends what `tutti up` or `tutti join` started on this machine.");
  app.name("tutti down");
  bool keep_jobs = false;
  app.add_flag("--keep-jobs", keep_jobs,
               "leave jobs running; `tutti up` finds them again, and the cluster waits ten minutes "
               "for it (else they are ended first)");
  if (const auto code = app.parse(argc, argv)) return *code;
  auto home = Home::open();
  if (!home) return complain("down", home.error());
  RealWorld world({.spin = 0s});
  auto ended = world.run(end_all(world, *home, keep_jobs));
  if (!ended) return complain("down", ended.error());
  return 0;
}

}  // namespace tutti::cli
