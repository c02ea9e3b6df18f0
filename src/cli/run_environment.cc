#include "cli/run_environment.h"

#include <fmt/format.h>

#include <algorithm>

#include "world/real/this_process.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kLauncher = "TORCHELASTIC_";

void set_if_missing(std::vector<std::string>& environment, std::string_view key,
                    std::string_view value) {
  const std::string start = fmt::format("{}=", key);
  const auto set = [&](const std::string& setting) { return setting.starts_with(start); };
  if (std::ranges::none_of(environment, set)) environment.push_back(start + std::string(value));
}

void replace_or_add(std::vector<std::string>& environment, const std::string& setting) {
  const std::string start = setting.substr(0, setting.find('=') + 1);
  std::erase_if(environment, [&](const std::string& old) { return old.starts_with(start); });
  environment.push_back(setting);
}

}  // namespace

std::vector<std::string> environment_of_ranks(const RunOptions& options, Random& random) {
  std::vector<std::string> environment = own_environment();
  // Of the launcher that started us: our ranks are none of its workers.
  std::erase_if(environment, [](const std::string& old) { return old.starts_with(kLauncher); });
  for (const std::string& setting : options.environment) replace_or_add(environment, setting);
  // Ranks that each start a thread per core get in each other's way; torchrun gives them one each.
  if (options.ranks > 1)
    set_if_missing(environment, "OMP_NUM_THREADS",
                   fmt::format("{}", std::max(1U, usable_cores() / options.ranks)));
  // Into a pipe Python would hold lines back, and lose them when killed.
  set_if_missing(environment, "PYTHONUNBUFFERED", "1");
  // Libraries ask these whether a launcher started them
  // (torch.distributed.is_torchelastic_launched).
  set_if_missing(environment, "TORCHELASTIC_RUN_ID", fmt::format("{:016x}", random.next()));
  set_if_missing(environment, "TORCHELASTIC_RESTART_COUNT", "0");
  set_if_missing(environment, "TORCHELASTIC_MAX_RESTARTS", "0");
  return environment;
}

}  // namespace tutti::cli
