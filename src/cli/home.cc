#include "cli/home.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/json.h"
#include "world/real/accounts.h"
#include "world/real/background.h"

namespace tutti::cli {
namespace {

// The kernel's limit of a Unix socket's path, less what we put behind the folder.
constexpr size_t kLongestFolder = 107 - std::string_view("/agent/keepers/01234567").size();
constexpr uint64_t kMaxMachineBytes = 64 << 10;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

Result<Home> Home::open() {
  Home home{std::string(variable("TUTTI_HOME"))};
  if (home.folder.empty() && variable("HOME").empty())
    return fail(Code::invalid, "neither TUTTI_HOME nor HOME is set; set one of them");
  if (home.folder.empty()) home.folder = fmt::format("{}/.local/state/tutti", variable("HOME"));
  if (!home.folder.starts_with('/')) home.folder = current_folder() + "/" + home.folder;
  if (home.folder.size() > kLongestFolder)
    return fail(Code::invalid,
                "{} is too long a name for a folder with sockets in it; set TUTTI_HOME to one of "
                "at most {} bytes",
                home.folder, kLongestFolder);
  return home;
}

Result<void> Home::make() const {
  auto made = make_private_folder(folder);
  if (made) return {};
  return fail(made.error().code(), "{}; set TUTTI_HOME to a folder that you may write",
              made.error().context("make the folder of this machine's cluster").text());
}

Task<Result<Machine>> load_machine(World& world, const Home& home) {
  const std::string path = home.machine_file();
  auto text = co_await read_file(world.disk(), path, kMaxMachineBytes);
  if (!text) co_return fail(std::move(text).error());
  CO_TRY(const Json json, parse_json(*text, path));
  Machine machine;
  CO_TRY(machine.cluster, json_get<std::string>(json, "cluster"));
  CO_TRY(machine.name, json_get<std::string>(json, "name"));
  CO_TRY(machine.user, json_get<std::string>(json, "user"));
  CO_TRY(machine.has_head, json_get<bool>(json, "has_head"));
  CO_TRY(const uint64_t slots, json_get<uint64_t>(json, "slots"));
  machine.slots = static_cast<uint32_t>(slots);
  if (json.contains("fan_out")) {
    CO_TRY(const uint64_t fan_out, json_get<uint64_t>(json, "fan_out"));
    machine.fan_out = static_cast<uint32_t>(fan_out);
  }
  CO_TRY(machine.listen, json_get<std::string>(json, "listen"));
  CO_TRY(machine.head_tree, json_get<std::string>(json, "head_tree"));
  CO_TRY(machine.head_api, json_get<std::string>(json, "head_api"));
  co_return machine;
}

Task<Result<void>> save_machine(World& world, const Home& home, Machine machine) {
  const Json json = {{"cluster", machine.cluster},  {"name", machine.name},
                     {"user", machine.user},        {"has_head", machine.has_head},
                     {"slots", machine.slots},      {"fan_out", machine.fan_out},
                     {"listen", machine.listen},    {"head_tree", machine.head_tree},
                     {"head_api", machine.head_api}};
  const std::string text = dump_json(json, 2) + "\n";
  const Bytes bytes = as_bytes(text);
  co_return co_await write_file_atomically(world.disk(), home.machine_file(), bytes);
}

std::string own_user_name(World& world) {
  const std::string name = own_account().name;
  return wire::check_name("name", name) ? name : fmt::format("uid{}", world.processes().own_uid());
}

Error no_cluster() {
  return {Code::unavailable, "no cluster is running here; start one with `tutti up`"};
}

}  // namespace tutti::cli
