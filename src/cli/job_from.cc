// What becomes a job: a command with its options, or a job file.
#include <fmt/format.h>

#include <set>

#include "cli/cluster_run.h"
#include "cli/run_environment.h"
#include "cluster/job_defaults.h"
#include "cluster/job_file.h"
#include "cluster/job_limits.h"
#include "world/real/background.h"

namespace tutti::cli {
namespace {

// As a name of a job may be: the command's last part, without what may not be in one.
std::string name_of(const std::string& command) {
  std::string name;
  for (const char letter : command.substr(command.find_last_of('/') + 1)) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9');
    if (plain || (!name.empty() && (letter == '-' || letter == '_' || letter == '.')))
      name += letter;
  }
  return name.empty() ? "run" : name.substr(0, kMostNameBytes);
}

std::string absolute(const std::string& folder) {
  if (folder.empty()) return current_folder();
  return folder.starts_with('/') ? folder : current_folder() + "/" + folder;
}

job::Spec job_of_command(World& world, const RunOptions& options) {
  job::Spec spec = default_job();
  spec.set_name(name_of(options.command.front()));
  spec.set_grace_ns(to_ns(options.grace));
  if (options.timeout) spec.set_timeout_ns(to_ns(*options.timeout));
  for (std::string& setting : environment_of_ranks(options, world.random()))
    spec.add_environment(std::move(setting));
  job::Role& role = *spec.add_roles();
  role = default_role(job::Role::GANG);
  role.set_name("rank");
  role.set_count(options.ranks);
  if (options.replaces()) {
    role.set_strategy(job::ONE_FOR_ONE);
    for (job::Budget& budget : *role.mutable_budgets()) {
      if (budget.error() == job::KILLED) budget.set_restarts(*options.restarts);
      budget.set_delay_ns(0);
    }
    role.set_spares(options.spares);
    if (options.spares > 0) role.add_preload("tutti");
  } else {
    role.clear_budgets();  // it ends as one
  }
  for (const std::string& word : options.command) role.add_command(word);
  if (!options.master_address.empty())
    role.add_environment("MASTER_ADDR=" + options.master_address);
  if (options.master_port != 0)
    role.add_environment(fmt::format("MASTER_PORT={}", options.master_port));
  return spec;
}

// What every job gets that does not say otherwise.
void complete(job::Spec& spec, const RunOptions& options, uint64_t open_files) {
  if (spec.folder().empty()) spec.set_folder(absolute(options.folder));
  if (spec.open_files() == 0) spec.set_open_files(open_files);
}

}  // namespace

Result<job::Spec> make_job_of_text(World& world, std::string_view text, std::string_view file_name,
                                   const RunOptions& options, uint64_t open_files) {
  TRY(job::Spec spec, parse_job_file(text, file_name));
  // What the file says counts more than what its caller has.
  std::set<std::string, std::less<>> said;
  for (const std::string& setting : spec.environment())
    said.insert(setting.substr(0, setting.find('=')));
  for (std::string& setting : environment_of_ranks(options, world.random()))
    if (!said.contains(setting.substr(0, setting.find('='))))
      spec.add_environment(std::move(setting));
  if (options.timeout) spec.set_timeout_ns(to_ns(*options.timeout));
  if (options.says_grace) spec.set_grace_ns(to_ns(options.grace));
  complete(spec, options, open_files);
  return spec;
}

// A folder here is no program elsewhere.
Task<Result<void>> check_no_folder(World& world, std::string command, std::string folder) {
  const bool is_path = command.contains('/') || command == "." || command == "..";
  if (!is_path) co_return {};
  const std::string path = command.starts_with('/') ? command : folder + "/" + command;
  auto found = co_await world.disk().info(path);
  if (!found || !found->directory) co_return {};
  co_return fail(Code::invalid, "{} is a folder, not a program; to run in it, write --cwd {}",
                 command, command);
}

Task<Result<job::Spec>> make_job(World& world, RunOptions options, uint64_t open_files) {
  if (options.is_job_file()) {
    const std::string path = options.command.front();
    auto text = co_await read_file(world.disk(), path, kMostJobBytes);
    if (!text) co_return fail(text.error().context("read the job file"));
    co_return make_job_of_text(world, *text, path, options, open_files);
  }
  job::Spec spec = job_of_command(world, options);
  complete(spec, options, open_files);
  const std::string program = options.command.front();
  const std::string folder = spec.folder();
  CO_TRY_DO(co_await check_no_folder(world, program, folder));
  co_return spec;
}

std::vector<std::string> process_labels(const job::Spec& spec) {
  if (spec.roles_size() == 1 && spec.roles(0).kind() == job::Role::GANG) return {};
  const JobNumbers numbers(spec);
  std::vector<std::string> labels;
  for (size_t role = 0; role < numbers.roles(); ++role)
    for (uint32_t index = 0; index < numbers.count(role); ++index)
      labels.push_back(fmt::format("{} {}", spec.roles(static_cast<int>(role)).name(), index));
  return labels;
}

}  // namespace tutti::cli
