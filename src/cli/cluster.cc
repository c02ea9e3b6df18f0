#include "cli/cluster.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/complain.h"
#include "wire/authority_folder.h"
#include "wire/failure.h"
#include "world/real/background.h"
#include "world/real/real_world.h"

namespace tutti::cli {
namespace {

Task<Result<int>> run_body(World& world, const std::function<Task<Result<int>>(Cluster&)>& body) {
  auto cluster = co_await Cluster::open(world);
  if (!cluster) co_return fail(std::move(cluster).error());
  Task<Result<int>> asking = body(**cluster);
  auto code = co_await std::move(asking);
  co_await (*cluster)->client->close();
  co_return code;
}

}  // namespace

Task<Result<std::unique_ptr<Cluster>>> Cluster::open(World& world) {
  CO_TRY(Home home, Home::open());
  co_return co_await open(world, std::move(home));
}

Task<Result<std::unique_ptr<Cluster>>> Cluster::open(World& world, Home home) {
  auto machine = co_await load_machine(world, home);
  if (!machine && machine.error().code() == Code::not_found) co_return fail(no_cluster());
  if (!machine) co_return fail(std::move(machine).error());
  CO_TRY(auto seals, wire::CertifiedSeals::make(world, std::nullopt));
  auto cluster = std::make_unique<Cluster>(
      Cluster{world, std::move(home), std::move(*machine), std::move(seals), nullptr});
  ClientOptions options{.head = cluster->home.head_socket(),
                        .own_host = cluster->machine.name,
                        .own_agent = cluster->home.agent_socket(),
                        .self = cluster->machine.user_identity()};
  if (!cluster->machine.has_head) {
    CO_TRY(options.head, Address::parse(cluster->machine.head_api));
    CO_TRY_DO(co_await cluster->load_certificate());
  }
  cluster->client = std::make_unique<ClusterClient>(world, *cluster->seals, std::move(options));
  auto reached = co_await cluster->reach();
  if (!reached) co_return fail(std::move(reached).error());
  co_return cluster;
}

Task<Result<void>> Cluster::reach() {
  auto connected = co_await client->connect();
  if (connected) co_return {};
  const Code code = connected.error().code();
  if (!machine.has_head)
    co_return fail(connected.error().context(
        fmt::format("ask the head of cluster {} at {}", machine.cluster, machine.head_api)));
  if (code != Code::unavailable && code != Code::not_found) co_return connected;
  if (running_program(home.pid_file("agent")))
    co_return fail(
        Code::unavailable,
        "the head of cluster {} is away, and its jobs go on; start it again with `tutti up`",
        machine.cluster);
  co_return fail(no_cluster());
}

Task<Result<void>> Cluster::load_certificate() {
  const std::string path =
      wire::certificate_path(home.cluster_folder(), wire::Role::user, machine.user);
  auto certificate = co_await wire::load_certificate(world, path);
  if (!certificate) co_return fail(std::move(certificate).error());
  co_return seals->renew(*certificate);
}

int with_cluster(std::string_view verb, const std::function<Task<Result<int>>(Cluster&)>& body) {
  RealWorld world({.spin = 0s});
  auto code = world.run(run_body(world, body));
  return code ? *code : complain(verb, wire::as_said(code.error()));
}

}  // namespace tutti::cli
