#include "cli/join.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "base/json.h"
#include "cli/arguments.h"
#include "cli/cluster.h"
#include "cli/complain.h"
#include "cli/programs.h"
#include "cluster/join_desk.h"
#include "wire/authority_folder.h"
#include "wire/tls.h"
#include "world/real/background.h"

namespace tutti::cli {
namespace {

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

// ---- token

Task<Result<int>> print_token(Cluster& cluster, Duration lifetime, std::string user, bool json) {
  cluster::TokenRequest request;
  request.set_user(std::move(user));
  request.set_lifetime_ns(to_ns(lifetime));
  auto reply = co_await cluster.client->ask(api::kToken, std::move(request));
  if (!reply) co_return fail(std::move(reply).error());
  const std::string& head = cluster.machine.head_api;
  if (json) {
    fmt::print("{}\n", dump_json({{"token", reply->token()},
                                  {"head", head},
                                  {"expires", reply->expires_unix_s()}}));
    co_return 0;
  }
  fmt::print("tutti join {} --token {}\n", head, reply->token());
  fmt::print(stderr, "good for one machine, until {}\n", wire::utc_text(reply->expires_unix_s()));
  CO_TRY(const Address address, Address::parse(head));
  if (is_loopback(address.host))
    fmt::print(stderr,
               "the head listens on {} only: for other machines, `tutti down --keep-jobs` and "
               "`tutti up --listen ADDR:PORT` with an address that they reach\n",
               address.host);
  co_return 0;
}

// ---- join

struct JoinOptions {
  Address head;
  JoinToken token;
  std::string name;
  std::string listen;
  uint32_t slots = 0;
};

struct Keys {
  wire::SigningRequest agent;
  wire::SigningRequest user;
};

Task<Result<cluster::JoinReply>> ask_to_join(World& world, const JoinOptions& options,
                                             const Machine& machine, const Keys& keys) {
  CO_TRY(const auto context, wire::TlsContext::make_guest(options.token.authority_key));
  const wire::MakeSeal seal = [&] -> Result<std::unique_ptr<wire::Seal>> {
    return wire::make_tls_seal(context, world.clock(), {.side = wire::Side::connecting});
  };
  ApiCaller caller(world, options.head, seal, {"", wire::Role::guest, machine.name});
  auto connection = co_await caller.connected();
  if (!connection) co_return fail(std::move(connection).error());
  cluster::JoinRequest request;
  request.set_secret(options.token.secret);
  request.set_name(machine.name);
  request.set_user(machine.user);
  request.set_agent_request(keys.agent.request_pem);
  request.set_user_request(keys.user.request_pem);
  auto reply = co_await (*connection)->call(api::kJoin, request);
  co_await caller.close();
  co_return reply;
}

Task<Result<void>> store(World& world, const Home& home, const std::string& key,
                         const std::string& leaf, const std::string& authority) {
  CO_TRY(wire::Certificate certificate, wire::Certificate::from_pem(key + leaf + authority));
  const wire::Identity identity = certificate.identity();
  const std::string path =
      wire::certificate_path(home.cluster_folder(), identity.role, identity.name);
  co_return co_await wire::store_certificate(world, path, std::move(certificate));
}

Task<Result<void>> become_member(RealWorld& world, const Home& home, const JoinOptions& options) {
  CO_TRY_DO(home.make());
  auto before = co_await load_machine(world, home);
  if (before)
    co_return fail(Code::exists,
                   "this machine is in cluster {} already; `tutti up` starts it. To leave it for "
                   "good: `tutti down`, then remove {}",
                   before->cluster, home.folder);
  Machine machine;
  machine.name = options.name.empty() ? world.host_name() : options.name;
  machine.user = own_user_name(world);
  machine.slots = options.slots;
  machine.listen = options.listen;
  Keys keys;
  CO_TRY(keys.agent, wire::SigningRequest::make());
  CO_TRY(keys.user, wire::SigningRequest::make());
  auto reply = co_await ask_to_join(world, options, machine, keys);
  if (!reply) co_return fail(reply.error().context("ask the head at " + options.head.text()));
  CO_TRY_DO(make_private_folder(home.cluster_folder()));
  CO_TRY_DO(co_await store(world, home, keys.agent.key_pem, reply->agent(), reply->authority()));
  CO_TRY_DO(co_await store(world, home, keys.user.key_pem, reply->user(), reply->authority()));
  machine.cluster = reply->cluster();
  machine.head_tree = reply->tree();
  machine.head_api = reply->api();
  CO_TRY_DO(co_await save_machine(world, home, machine));
  auto agent = co_await start_program(world, home, "agent");
  if (!agent) co_return fail(std::move(agent).error());
  CO_TRY_DO(co_await wait_until_member(world, home));
  fmt::print("{} is in cluster {}; `tutti status` shows it, `tutti down` ends its agent\n",
             machine.name, machine.cluster);
  co_return {};
}

}  // namespace

int token(int argc, char** argv) {
  Arguments app("Prints the command that lets another machine join this cluster, once.");
  app.name("tutti token");
  std::string lifetime = "1h";
  std::string user;
  bool json = false;
  app.add_option("--for", lifetime, "how long it is good (1h)");
  app.add_option("--user", user, "who joins with it, and whose jobs come from there (you)");
  app.add_flag("--json", json, "for tools");
  if (const auto code = app.parse(argc, argv)) return *code;
  auto parsed = parse_duration(lifetime);
  if (!parsed) return complain("token", parsed.error(), kCalledWrongly);
  return with_cluster("token",
                      [&](Cluster& cluster) { return print_token(cluster, *parsed, user, json); });
}

int join(int argc, char** argv) {
  Arguments app("Makes this machine a member of a cluster, with an agent in the background.");
  app.name("tutti join");
  JoinOptions options;
  std::string head;
  std::string token;
  app.add_option("HEAD", head, "ADDR:PORT of the head, as `tutti token` prints it").required();
  app.add_option("--token", token, "as `tutti token` on the head's machine prints it").required();
  app.add_option("--name", options.name, "what this machine is called there (its host name)");
  app.add_option("--slots", options.slots, "processes at a time (as many as it has cores)")
      .between(1, kMostSlots);
  app.add_option("--listen", options.listen, "ADDR:0 where the others reach this machine");
  if (const auto code = app.parse(argc, argv)) return *code;
  auto address = Address::parse(head);
  if (!address) return complain("join", address.error(), kCalledWrongly);
  options.head = *address;
  auto parsed = JoinToken::parse(token);
  if (!parsed) return complain("join", parsed.error(), kCalledWrongly);
  options.token = *parsed;
  if (options.listen.empty() && !is_loopback(address->host))
    return complain(
        "join", Error(Code::invalid, "say where the others reach this machine: --listen ADDR:0"),
        kCalledWrongly);
  if (options.listen.empty()) options.listen = "127.0.0.1:0";
  if (auto listen = Address::parse(options.listen); !listen)
    return complain("join", listen.error(), kCalledWrongly);
  auto home = Home::open();
  if (!home) return complain("join", home.error());
  RealWorld world({.spin = 0s});
  auto joined = world.run(become_member(world, *home, options));
  if (!joined) return complain("join", joined.error());
  return 0;
}

}  // namespace tutti::cli
