#include "cli/keeper.h"

#include <fmt/format.h>

#include <bit>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "cli/complain.h"
#include "cli/programs.h"
#include "cluster/keeper.h"
#include "cluster/keeper_client.h"
#include "world/real/background.h"
#include "world/real/fd.h"
#include "world/real/real_world.h"
#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

// Service managers and schedulers send these to all processes at once. Dead of one, the keeper
// would take the ranks with it, without the grace they are owed; its controller is told too, and
// the end of the stream is the only reason it needs.
constexpr int kIgnored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

Result<KeeperOptions> parse(int argc, char** argv) {
  KeeperOptions options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--group" && !value.empty()) {
      options.group = value;
    } else if (name == "--linger" && !value.empty()) {
      options.linger = value;
    } else if (name == "--speak" && (value == "1" || value == "2")) {
      options.speak = value == "1" ? 1 : 2;
    } else {
      return fail(Code::invalid, "usage: tutti keeper [--group NAME] [--linger PATH]");
    }
  }
  return options;
}

}  // namespace

int keeper(int argc, char** argv) {
  auto options = parse(argc, argv);
  if (!options) return complain("keeper", options.error(), kCalledWrongly);
  // A rank may fill the machine with its vault alone, or with its scratch.
  options->heap_bytes_each = 2 * std::bit_ceil(host_memory_bytes());
  name_this_process(kKeeperName);
  ignore_signals(kIgnored);
  give_own_nice_to_session();  // ours is not that of who started us
  RealWorld world({.spin = 0s});
  auto controller = world.network().adopt(own_fd(kKeeperControllerNumber));
  if (!controller)
    return complain("keeper",
                    controller.error().context("a keeper is started by other commands of tutti"));
  auto kept = world.run(keep(world, std::move(*options), std::move(*controller)));
  if (!kept) return complain("keeper", kept.error());
  return 0;
}

}  // namespace tutti::cli
