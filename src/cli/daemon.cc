#include "cli/daemon.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "base/log.h"
#include "cli/complain.h"
#include "wire/authority_folder.h"
#include "world/real/background.h"
#include "world/real/signals.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

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

Result<void> run_program(std::string_view program, Task<Result<void>> (*body)(DaemonContext&)) {
  TRY(Home home, Home::open());
  TRY_DO(make_private_folder(home.folder));
  TRY_DO(make_private_folder(home.folder + "/" + std::string(program)));
  auto pid_file = PidFile::take(home.pid_file(program));
  if (!pid_file) return fail(pid_file.error().context(fmt::format("be the {} here", program)));
  RealWorld world({.spin = 0s});
  constexpr int kNumbers[] = {SIGTERM, SIGINT};
  TRY(auto signals, Signals::create(world.loop(), kNumbers));
  DaemonContext context{world, std::move(home), {}};
  return world.run(run_until_signal(context, *signals, body));
}

}  // namespace

int run_daemon(std::string_view program, int argc, char** argv,
               Task<Result<void>> (*body)(DaemonContext& context)) {
  if (argc > 1) {
    const bool asked = std::string_view(argv[1]) == "--help";
    fmt::print(asked ? stdout : stderr,
               "usage: tutti {}\n\nRuns the {} of this machine in the foreground, for service "
               "managers, until SIGTERM.\n`tutti up` sets the machine up and starts it in the "
               "background.\n",
               program, program);
    return asked ? 0 : kCalledWrongly;
  }
  set_log_level(LogLevel::info);
  set_log_stamp([] {
    static const RealClock clock;
    return LogStamp{.clock = LogStamp::Clock::utc, .ns = clock.unix_ns(), .host = ""};
  });
  constexpr int kHangUp[] = {SIGHUP};
  ignore_signals(kHangUp);
  auto ran = run_program(program, body);
  if (ran) return 0;
  fmt::print(stderr, "tutti {}: {}\n", program, ran.error().text());
  return kFailed;
}

Task<Result<Credential>> credential_of(DaemonContext& context, wire::Role role, std::string name) {
  wire::IssueOptions options{
      .role = role, .name = std::move(name), .lifetime_s = kProgramLifetime_s};
  auto certificate = co_await wire::obtain_certificate(context.world, context.home.cluster_folder(),
                                                       context.machine.cluster, std::move(options));
  if (!certificate) co_return fail(std::move(certificate).error());
  Credential credential{certificate->identity(), nullptr};
  CO_TRY(credential.seals, wire::CertifiedSeals::make(context.world, *certificate));
  co_return credential;
}

}  // namespace tutti::cli
