#include "cli/embedded.h"

#include <algorithm>

#include "cli/programs.h"
#include "cluster/job_layout.h"
#include "wire/authority_folder.h"
#include "world/real/background.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr Duration kEndPatience = 20s;

// As many as the job wants at least: it has this machine for itself.
uint32_t slots_for(const job::Spec& spec) {
  const JobNumbers numbers(spec);
  uint64_t wanted = 0;
  for (size_t role = 0; role < numbers.roles(); ++role)
    wanted += uint64_t{numbers.count(role)} * spec.roles(static_cast<int>(role)).slots();
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, usable_cores(), UINT32_MAX));
}

Task<Result<void>> start_all(RealWorld& world, Home home, uint32_t slots) {
  auto authority = co_await wire::open_authority(world, home.cluster_folder(), "");
  if (!authority) co_return fail(std::move(authority).error());
  Machine machine{.cluster = authority->cluster(),
                  .name = world.host_name(),
                  .user = own_user_name(world),
                  .has_head = true,
                  .slots = slots,
                  .listen = "127.0.0.1:0",
                  .head_tree = {},
                  .head_api = {}};
  CO_TRY_DO(co_await save_machine(world, home, std::move(machine)));
  auto head = co_await start_program(world, home, "head", true);
  if (!head) co_return fail(std::move(head).error());
  auto agent = co_await start_program(world, home, "agent", true);
  if (!agent) co_return fail(std::move(agent).error());
  co_return co_await wait_until_member(world, std::move(home));
}

}  // namespace

Result<std::unique_ptr<EmbeddedCluster>> EmbeddedCluster::start(RealWorld& world,
                                                                const job::Spec& spec) {
  TRY(std::string folder, make_temporary_folder("tutti-run-"));
  std::unique_ptr<EmbeddedCluster> cluster(new EmbeddedCluster(Home{std::move(folder)}));
  auto started = world.run(start_all(world, cluster->home_, slots_for(spec)));
  if (!started) return fail(started.error().context("begin a cluster for this run alone"));
  return cluster;
}

EmbeddedCluster::~EmbeddedCluster() {
  (void)end_program(home_.pid_file("agent"), kEndPatience);
  (void)end_program(home_.pid_file("head"), kEndPatience);
  (void)remove_folder(home_.folder);
}

}  // namespace tutti::cli
