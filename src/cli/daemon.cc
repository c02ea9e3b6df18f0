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
#include "wire/authority_folder.h"
#include "world/real/background.h"
#include "world/real/signals.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr Duration kAgentPatience = 10s;

Task<void> cancel_on_signal(Signals& signals, Scope& scope) {
  auto number = co_await signals.next();
  if (number) scope.cancel();
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
  waiting.spawn(cancel_on_signal(signals, running));
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
  TRY_DO(make_private_folder(home.folder));
  TRY_DO(make_private_folder(home.folder + "/" + std::string(program)));
  auto pid_file = PidFile::take(home.pid_file(program));
  if (!pid_file) return fail(pid_file.error().context(fmt::format("be the {} here", program)));
  RealWorld world({.spin = 0s});
  constexpr int kNumbers[] = {SIGTERM, SIGINT};
  TRY(auto signals, Signals::create(world.loop(), kNumbers));
  DaemonContext context{world, std::move(home), {}, embedded};
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

namespace {

constexpr Duration kRenewalPause = 1h;

// Tests have no time to wait for a year.
int64_t program_lifetime_s() {
  const char* said = std::getenv("TUTTI_TEST_CERTIFICATES_LIVE_S");
  return said == nullptr ? kProgramLifetime_s : std::strtoll(said, nullptr, 10);
}

wire::IssueOptions issue_options(wire::Role role, std::string name) {
  return {.role = role, .name = std::move(name), .lifetime_s = program_lifetime_s()};
}

}  // namespace

Task<Result<void>> keep_renewed(DaemonContext& context, const Credential& credential) {
  const Duration tenth = program_lifetime_s() * 1s / 10;
  while (true) {
    CO_TRY_DO(co_await context.world.clock().sleep(std::min(kRenewalPause, tenth)));
    auto certificate = co_await wire::obtain_certificate(
        context.world, context.home.cluster_folder(), context.machine.cluster,
        issue_options(credential.identity.role, credential.identity.name));
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
