#include "cli/head.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "cli/daemon.h"
#include "cli/head_index.h"
#include "cluster/head_api.h"
#include "wire/authority_folder.h"
#include "world/semaphore.h"

namespace tutti::cli {
namespace {

// The ports it has now it has again: those who know it look there.
Task<Result<void>> remember_addresses(DaemonContext& context, Head& head, JoinDesk& desk,
                                      const Listener& api) {
  Machine& machine = context.machine;
  const Address listen = *Address::parse(machine.listen);
  const auto told = [&](uint16_t port) { return Address::tcp(listen.host, port).text(); };
  machine.head_tree = told(Address::parse(head.status(true).address())->port);
  machine.head_api = told(api.address().port);
  desk.set_addresses(machine.head_tree, machine.head_api);
  Machine saved = machine;
  CO_TRY_DO(co_await save_machine(context.world, context.home, std::move(saved)));
  TUTTI_LOG(info, "the head listens", {{"agents", machine.head_tree}, {"users", machine.head_api}});
  co_return {};
}

struct Listeners {
  std::unique_ptr<Listener> here;
  std::unique_ptr<Listener> anywhere;
};

// Answers users as soon as the head has read its log.
Task<Result<void>> serve_users(DaemonContext& context, Event& started, Head& head, JoinDesk& desk,
                               HeadApi& api, Listeners& listeners) {
  CO_TRY_DO(co_await started.wait());
  CO_TRY_DO(co_await remember_addresses(context, head, desk, *listeners.anywhere));
  Scope serving;
  serving.spawn(api.serve(*listeners.here));
  serving.spawn(api.serve(*listeners.anywhere));
  co_return co_await serving.join();
}

// From the environment, where few look: what is there without it suits nearly everybody.
Result<uint64_t> number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return otherwise;
  uint64_t number = 0;
  const char* end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, number);
  if (error == std::errc() && last == end && number != 0) return number;
  return fail(Code::invalid, "{}={}: write a number from 1 on, or unset it", variable, text);
}

Task<Result<void>> body(DaemonContext& context) {
  RealWorld& world = context.world;
  const Machine& machine = context.machine;
  if (!machine.has_head)
    co_return fail(Code::invalid, "the head of cluster {} is elsewhere, at {}", machine.cluster,
                   machine.head_api);
  auto authority =
      co_await wire::open_authority(world, context.home.cluster_folder(), machine.cluster);
  if (!authority) co_return fail(std::move(authority).error());
  auto credential = co_await credential_of(context, wire::Role::head, "head");
  if (!credential) co_return fail(std::move(credential).error());
  CO_TRY(const Address listen, Address::parse(machine.listen));
  CO_TRY(Address api_address,
         Address::parse(machine.head_api.empty() ? machine.listen : machine.head_api));
  Address socket = context.home.head_socket();
  auto here = co_await world.network().listen(std::move(socket));
  if (!here) co_return fail(std::move(here).error());
  auto anywhere = co_await world.network().listen(std::move(api_address));
  if (!anywhere) co_return fail(anywhere.error().context("listen for users"));

  Listeners listeners{std::move(*here), std::move(*anywhere)};
  Event started;
  HeadOptions options;
  options.tree.self = credential->identity;
  pretend_other_version(options.tree);
  options.listen = Address::tcp(listen.host, 0);
  if (!machine.head_tree.empty()) {
    CO_TRY(options.listen, Address::parse(machine.head_tree));
  }
  if (machine.fan_out != 0) options.tree.shape.fan_out = machine.fan_out;
  options.folder = context.home.head_folder();
  options.reserve_log = !context.embedded;
  options.owner = machine.user;
  options.started = [&started] { started.set(); };
  CO_TRY(options.most_ended, number_from("TUTTI_HEAD_KEEPS", options.most_ended));
  CO_TRY(options.log_bytes, number_from("TUTTI_HEAD_LOG_BYTES", options.log_bytes));
  HeadIndex index(world, options.folder + "/jobs.sqlite");
  options.index = &index;
  Head head(world, *credential->seals, std::move(options));
  JoinDesk desk(world, std::move(*authority), program_lifetime_s());
  HeadApi api(world, *credential->seals, head, desk, credential->identity, machine.user);
  Scope strands;
  strands.spawn(head.run());
  strands.spawn(keep_renewed(context, *credential));
  strands.spawn(serve_users(context, started, head, desk, api, listeners));
  co_return co_await strands.join();
}

}  // namespace

int head(int argc, char** argv) { return run_daemon("head", argc, argv, body); }

}  // namespace tutti::cli
