#include "cluster/keeper_client.h"

namespace tutti {

Result<StartedKeeper> start_keeper(World& world, const StartKeeperOptions& options) {
  TRY(Network::Pair pair, world.network().pair());
  SpawnOptions spawn;
  spawn.arguments = options.command;
  if (!options.group.empty())
    spawn.arguments.insert(spawn.arguments.end(), {"--group", options.group});
  if (!options.linger.empty())
    spawn.arguments.insert(spawn.arguments.end(), {"--linger", options.linger});
  spawn.environment = options.environment;
  spawn.inherit.push_back({&pair.theirs, kKeeperControllerNumber});
  constexpr int kStandardError = 2;
  if (options.errors != nullptr) spawn.inherit.push_back({options.errors, kStandardError});
  spawn.new_session = true;
  auto process = world.processes().spawn(spawn);
  if (!process) return fail(process.error().context("start the keeper"));
  return StartedKeeper{std::move(*process), std::make_unique<KeeperStream>(std::move(pair.ours))};
}

}  // namespace tutti
