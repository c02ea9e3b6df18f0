#include "cli/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "cli/cluster.h"
#include "world/real/background.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr Duration kStartPatience = 30s;
constexpr Duration kLookPause = 5ms;
constexpr uint64_t kMaxLogBytes = 64_MiB;
constexpr size_t kLastWords = 600;

Task<Error> did_not_start(World& world, const Home& home, std::string_view program) {
  const std::string path = home.log_file(program);
  auto log = co_await read_file(world.disk(), path, kMaxLogBytes);
  std::string words = log.value_or("");
  if (words.size() > kLastWords) words = words.substr(words.size() - kLastWords);
  while (words.ends_with('\n')) words.pop_back();
  co_return Error(Code::unavailable,
                  fmt::format("the {} did not start; the end of {}:\n{}", program, path, words));
}

bool is_alive(const cluster::StatusReply& status, const std::string& name) {
  return std::ranges::any_of(status.hosts(), [&](const cluster::HostStatus& host) {
    return host.name() == name && host.alive();
  });
}

Result<std::unique_ptr<Process>> spawn_program(RealWorld& world, const Home& home,
                                               std::string_view program, bool embedded) {
  TRY_DO(make_private_folder(home.folder + "/log"));
  TRY(const Handle log, open_log_file(home.log_file(program)));
  SpawnOptions options;
  options.program = kOwnProgram;
  options.arguments = {"tutti", std::string(program)};
  options.environment = own_environment();
  std::erase_if(options.environment,
                [](const std::string& setting) { return setting.starts_with("TUTTI_HOME="); });
  options.environment.push_back("TUTTI_HOME=" + home.folder);
  if (embedded) {
    options.arguments.emplace_back(kEmbedded);
    options.parent_death_signal = SIGTERM;
  }
  options.folder = "/";
  options.inherit = {{&log, kStandardOutput}, {&log, kStandardError}};
  options.new_session = true;
  return world.processes().spawn(options);
}

// Whether it takes calls.
Task<bool> answers(World& world, wire::Seals& seals, Address address, wire::Identity self) {
  const auto seal = [&seals] {
    return seals.make({.kind = Address::Kind::unix_socket, .side = wire::Side::connecting});
  };
  ApiCaller caller(world, std::move(address), seal, std::move(self));
  auto connection = co_await caller.connected();
  co_await caller.close();
  co_return connection.has_value();
}

}  // namespace

Task<Result<bool>> start_program(RealWorld& world, const Home& home, std::string_view program,
                                 bool embedded) {
  auto machine = co_await load_machine(world, home);
  if (!machine) co_return fail(std::move(machine).error());
  CO_TRY(const auto seals, wire::CertifiedSeals::make(world, std::nullopt));
  const Address address = program == "head" ? home.head_socket() : home.agent_socket();
  const Instant patience = world.clock().now() + kStartPatience;
  std::unique_ptr<Process> process;
  while (world.clock().now() < patience) {
    Address there = address;
    const bool there_is =
        co_await answers(world, *seals, std::move(there), machine->user_identity());
    if (there_is) co_return process != nullptr;
    if (process != nullptr && !process->signal(0)) break;
    // One that was killed a moment ago may still be on its way out.
    if (process == nullptr && !running_program(home.pid_file(program))) {
      CO_TRY(process, spawn_program(world, home, program, embedded));
    }
    CO_TRY_DO(co_await world.clock().sleep(kLookPause));
  }
  Error why = co_await did_not_start(world, home, program);
  co_return fail(std::move(why));
}

Task<Result<void>> wait_until_member(World& world, Home home) {
  const Instant patience = world.clock().now() + kStartPatience;
  while (world.clock().now() < patience) {
    auto cluster = co_await Cluster::open(world, home);
    if (!cluster) co_return fail(std::move(cluster).error());
    bool member = false;
    while (!member && world.clock().now() < patience) {
      auto status = co_await (*cluster)->client->ask(api::kStatus, cluster::StatusRequest());
      if (!status) break;
      member = is_alive(*status, (*cluster)->machine.name);
      if (!member) (void)co_await world.clock().sleep(kLookPause);
    }
    co_await (*cluster)->client->close();
    if (member) co_return {};
  }
  co_return fail(Code::deadline,
                 "this machine's agent does not reach the head; see the log of the agent");
}

}  // namespace tutti::cli
