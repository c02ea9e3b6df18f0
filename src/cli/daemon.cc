#include "cli/daemon.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "cli/complain.h"
#include "cli/programs.h"
#include "cluster/client.h"
#include "wire/authority_folder.h"
#include "world/real/background.h"
#include "world/real/signals.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr Duration kAgentPatience = 10s;

// More than an agent takes for it.
constexpr Duration kAnnouncePatience = 5s;

Task<Result<void>> wait_for(Event& event) { co_return co_await event.wait(); }

Task<void> cancel_on_signal(DaemonContext& context, Signals& signals, Scope& scope) {
  auto number = co_await signals.next();
  if (!number) co_return;
  if (*number == kLeaveForAWhile && context.announces) {
    context.leaving.set();
    const Instant patience = context.world.clock().now() + kAnnouncePatience;
    Task<Result<void>> announced = wait_for(context.announced);
    auto waited = co_await with_deadline(context.world.clock(), patience, std::move(announced));
    static_cast<void>(waited);
  }
  scope.cancel();
}

Task<Result<void>> run_until_signal(DaemonContext& context, Signals& signals,
                                    Task<Result<void>> (*body)(DaemonContext&)) {
  auto machine = co_await load_machine(context.world, context.home);
  if (!machine && machine.error().code() == Code::not_found)
    co_return fail(Code::not_found, "this machine is in no cluster; begin one with `tutti up`");
  if (!machine) co_return fail(std::move(machine).error());
  context.machine = std::move(*machine);
  Scope running;
  Scope waiting;
  waiting.spawn(cancel_on_signal(context, signals, running));
  running.spawn(body(context));
  auto ran = co_await running.join();
  waiting.cancel();
  (void)co_await waiting.join();
  if (!ran && ran.error().code() == Code::cancelled) co_return {};
  co_return ran;
}

Result<void> run_program(std::string_view program, Task<Result<void>> (*body)(DaemonContext&),
                         bool embedded) {
  TRY(Home home, Home::open());
  TRY_DO(home.make());
  TRY_DO(make_private_folder(home.folder + "/" + std::string(program)));
  auto pid_file = PidFile::take(home.pid_file(program));
  if (!pid_file) return fail(pid_file.error().context(fmt::format("be the {} here", program)));
  RealWorld world({.spin = 0s});
  constexpr int kNumbers[] = {SIGTERM, SIGINT, kLeaveForAWhile};
  TRY(auto signals, Signals::create(world.loop(), kNumbers));
  DaemonContext context{
      .world = world, .home = std::move(home), .machine = {}, .embedded = embedded};
  auto ran = world.run(run_until_signal(context, *signals, body));
  // Of those who are gone with a run, the head leaves last, and takes the folder with it.
  if (!embedded || program != "head") return ran;
  TRY_DO(end_program(context.home.pid_file("agent"), kAgentPatience));
  TRY_DO(remove_folder(context.home.folder));
  return ran;
}

}  // namespace

int run_daemon(std::string_view program, int argc, char** argv,
               Task<Result<void>> (*body)(DaemonContext& context)) {
  const bool embedded = argc == 2 && std::string_view(argv[1]) == kEmbedded;
  if (argc > 1 && !embedded) {
    const bool asked = std::string_view(argv[1]) == "--help";
    fmt::print(asked ? stdout : stderr,
               "usage: tutti {}\n\nRuns the {} of this machine in the foreground, for service "
               "managers, until SIGTERM.\n`tutti up` sets the machine up and starts it in the "
               "background.\n",
               program, program);
    return asked ? 0 : kCalledWrongly;
  }
  name_this_process("tutti");
  set_log_level(LogLevel::info);
  set_log_stamp([] {
    static const RealClock clock;
    return LogStamp{.clock = LogStamp::Clock::utc, .ns = clock.unix_ns(), .host = ""};
  });
  constexpr int kHangUp[] = {SIGHUP};
  ignore_signals(kHangUp);
  auto ran = run_program(program, body, embedded);
  if (ran) return 0;
  fmt::print(stderr, "tutti {}: {}\n", program, ran.error().text());
  return kFailed;
}

// "1-2"
void pretend_other_version(TreeOptions& tree) {
  const char* said = std::getenv("TUTTI_TEST_TREE_SPEAKS");
  if (said == nullptr) return;
  char* rest = nullptr;
  tree.lowest_version = static_cast<uint16_t>(std::strtoul(said, &rest, 10));
  tree.highest_version = *rest == '-' ? static_cast<uint16_t>(std::strtoul(rest + 1, nullptr, 10))
                                      : tree.lowest_version;
}

// Tests have no time to wait for a year.
int64_t program_lifetime_s() {
  const char* said = std::getenv("TUTTI_TEST_CERTIFICATES_LIVE_S");
  return said == nullptr ? kProgramLifetime_s : std::strtoll(said, nullptr, 10);
}

namespace {

constexpr Duration kRenewalPause = 1h;

wire::IssueOptions issue_options(wire::Role role, std::string name) {
  return {.role = role, .name = std::move(name), .lifetime_s = program_lifetime_s()};
}

// The head signs another one for who still has one that is good.
Task<Result<wire::Certificate>> ask_for_another(DaemonContext& context, wire::Certificate present) {
  CO_TRY(const auto seals, wire::CertifiedSeals::make(context.world, present));
  CO_TRY(Address address, Address::parse(context.machine.head_api));
  const wire::MakeSeal seal = [&] {
    wire::SealRequest request{.kind = Address::Kind::tcp, .side = wire::Side::connecting};
    request.expected.roles = {wire::Role::head};
    return seals->make(std::move(request));
  };
  CO_TRY(const wire::SigningRequest key, wire::SigningRequest::make());
  ApiCaller caller(context.world, std::move(address), seal, present.identity());
  cluster::RenewRequest request;
  request.set_request(key.request_pem);
  auto reply = co_await caller.ask(api::kRenew, std::move(request));
  co_await caller.close();
  if (!reply) co_return fail(reply.error().context("ask the head for another certificate"));
  co_return wire::Certificate::from_pem(key.key_pem + reply->certificate() + reply->authority());
}

// Of a member, if it is time.
Task<Result<wire::Certificate>> renew_by_head(DaemonContext& context, wire::Role role,
                                              std::string name) {
  const std::string path = wire::certificate_path(context.home.cluster_folder(), role, name);
  auto present = co_await wire::load_certificate(context.world, path);
  if (!present) co_return fail(std::move(present).error());
  const int64_t now = context.world.clock().unix_ns() / 1'000'000'000;
  if (!present->needs_renewal(now)) co_return present;
  const wire::Identity identity = present->identity();
  auto renewed = co_await ask_for_another(context, std::move(*present));
  if (!renewed) co_return fail(std::move(renewed).error());
  if (renewed->identity() != identity)
    co_return fail(Code::denied, "the head gave a certificate of another, {}",
                   renewed->identity().name);
  auto stored = co_await wire::store_certificate(context.world, path, *renewed);
  if (!stored) co_return fail(std::move(stored).error());
  co_return renewed;
}

Task<Result<wire::Certificate>> renew(DaemonContext& context, wire::Identity identity) {
  if (!context.machine.has_head) {
    // Whoever uses the command here needs one as well.
    std::string user = context.machine.user;
    auto of_user = co_await renew_by_head(context, wire::Role::user, std::move(user));
    if (!of_user)
      TUTTI_LOG(warn, "the user's certificate is not renewed", {{"why", of_user.error().text()}});
    std::string name = identity.name;
    co_return co_await renew_by_head(context, identity.role, std::move(name));
  }
  wire::IssueOptions options = issue_options(identity.role, identity.name);
  co_return co_await wire::obtain_certificate(context.world, context.home.cluster_folder(),
                                              context.machine.cluster, std::move(options));
}

}  // namespace

Task<Result<void>> keep_renewed(DaemonContext& context, const Credential& credential) {
  const Duration tenth = program_lifetime_s() * 1s / 10;
  while (true) {
    CO_TRY_DO(co_await context.world.clock().sleep(std::min(kRenewalPause, tenth)));
    wire::Identity identity = credential.identity;
    auto certificate = co_await renew(context, std::move(identity));
    auto renewed = certificate ? credential.seals->renew(*certificate)
                               : Result<void>(fail(std::move(certificate).error()));
    if (!renewed)
      TUTTI_LOG(warn, "the certificate is not renewed", {{"why", renewed.error().text()}});
  }
}

Task<Result<Credential>> credential_of(DaemonContext& context, wire::Role role, std::string name) {
  wire::IssueOptions options = issue_options(role, std::move(name));
  auto certificate = co_await wire::obtain_certificate(context.world, context.home.cluster_folder(),
                                                       context.machine.cluster, std::move(options));
  if (!certificate) co_return fail(std::move(certificate).error());
  Credential credential{certificate->identity(), nullptr};
  CO_TRY(credential.seals, wire::CertifiedSeals::make(context.world, *certificate));
  co_return credential;
}

}  // namespace tutti::cli
