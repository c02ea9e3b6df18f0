#include "cli/agent.h"

#include <cstdlib>

#include "cli/daemon.h"
#include "cli/programs.h"
#include "cluster/agent_api.h"
#include "world/real/accounts.h"
#include "world/real/background.h"
#include "world/real/environment_search.h"
#include "world/real/this_process.h"
#include "world/semaphore.h"

namespace tutti::cli {
namespace {

// An agent that waits behind its ranks for a processor is taken for dead.
constexpr int kAgentNice = -5;
constexpr int kRankNice = 1;

Task<Result<void>> serve_users(Event& started, AgentApi& api, Listener& here, Listener& anywhere) {
  CO_TRY_DO(co_await started.wait());
  Scope serving;
  serving.spawn(api.serve(here));
  serving.spawn(api.serve(anywhere));
  co_return co_await serving.join();
}

Task<Result<void>> leave_when_told(DaemonContext& context, Event& started, Agent& agent) {
  CO_TRY_DO(co_await started.wait());
  context.announces = true;
  CO_TRY_DO(co_await context.leaving.wait());
  co_await agent.announce_leave();
  context.announced.set();
  co_return {};
}

AgentPlace agent_place(const Machine& machine, const wire::Identity& identity,
                       const Address& listen, const Address& api) {
  AgentPlace place;
  place.tree.self = identity;
  tree::Place head;
  head.set_node(kHead);
  head.set_address(machine.head_tree);
  place.tree.places = {head};
  pretend_other_version(place.tree);
  place.listen = Address::tcp(listen.host, 0);
  place.api = Address::tcp(listen.host, api.port).text();
  return place;
}

// For tests of mixed versions: what an agent and the keepers it starts would speak if they were
// older.
void pretend_to_be_older(StartKeeperOptions& keeper) {
  if (const char* ours = std::getenv("TUTTI_TEST_AGENT_SPEAKS"))
    keeper.speak = static_cast<uint32_t>(std::strtoul(ours, nullptr, 10));
  if (const char* theirs = std::getenv("TUTTI_TEST_KEEPERS_SPEAK"))
    keeper.command.insert(keeper.command.end(), {"--speak", theirs});
}

// Only root can become somebody else; whoever is not root runs what is his own.
Result<std::optional<RunAs>> run_as(const std::string& user, const std::string& host) {
  const Account own = own_account();
  if (user.empty() || user == own.name || user == fmt::format("uid{}", own.user))
    return std::nullopt;
  if (own.user != 0)
    return fail(Code::denied,
                "the agent of {} runs as {} and runs {}'s jobs alone, this one is {}'s; an agent "
                "that runs as root runs everybody's",
                host, own.name, own.name, user);
  auto account = account_named(user);
  if (!account)
    return fail(account.error().context(
        fmt::format("run a job of {} on {}; make the account there", user, host)));
  if (account->user == own.user) return std::nullopt;
  return RunAs{
      .user = account->user, .name = account->name, .home = account->home, .shell = account->shell};
}

AgentOptions agent_options(const DaemonContext& context) {
  const Machine& machine = context.machine;
  AgentOptions options;
  options.folder = context.home.agent_folder();
  options.slots = machine.slots != 0 ? machine.slots : usable_cores();
  if (const Account own = own_account(); own.user != 0) options.only_for = own.name;
  options.keeper.program = kOwnProgram;
  options.keeper.command = {kKeeperName, "keeper"};
  options.keeper.environment = own_environment();
  pretend_to_be_older(options.keeper);
  options.run_as = [host = machine.name](const std::string& user) { return run_as(user, host); };
  options.find_by_environment = find_by_environment;
  options.keepers_linger = !context.embedded;
  options.reserve_log = !context.embedded;
  options.rank_nice = change_own_nice(kAgentNice) ? -kAgentNice : kRankNice;
  give_own_nice_to_session();
  return options;
}

Task<Result<void>> body(DaemonContext& context) {
  RealWorld& world = context.world;
  const Machine& machine = context.machine;
  allow_most_open_files();  // pipes of ranks, keepers and connections
  auto credential = co_await credential_of(context, wire::Role::agent, machine.name);
  if (!credential) co_return fail(std::move(credential).error());
  CO_TRY(const Address listen, Address::parse(machine.listen));
  Address socket = context.home.agent_socket();
  auto here = co_await world.network().listen(std::move(socket));
  if (!here) co_return fail(std::move(here).error());
  Address any_port = Address::tcp(listen.host, 0);
  auto anywhere = co_await world.network().listen(std::move(any_port));
  if (!anywhere) co_return fail(anywhere.error().context("listen for users"));

  Event started;
  auto options = std::make_shared<AgentOptions>(agent_options(context));
  options->started = [&started] { started.set(); };
  AgentPlace place = agent_place(machine, credential->identity, listen, (*anywhere)->address());
  Agent agent(world, *credential->seals, std::move(options), std::move(place));
  AgentApi api(world, *credential->seals, agent, credential->identity);
  Scope strands;
  strands.spawn(agent.run());
  strands.spawn(keep_renewed(context, *credential));
  strands.spawn(serve_users(started, api, **here, **anywhere));
  strands.spawn(leave_when_told(context, started, agent));
  co_return co_await strands.join();
}

}  // namespace

int agent(int argc, char** argv) { return run_daemon("agent", argc, argv, body); }

}  // namespace tutti::cli
