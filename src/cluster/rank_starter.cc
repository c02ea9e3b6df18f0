#include "cluster/rank_starter.h"

#include <csignal>
#include <map>
#include <string_view>

namespace tutti {
namespace {

constexpr int kStandardInput = 0;
constexpr int kStandardOutput = 1;
constexpr int kStandardError = 2;
constexpr unsigned kUsualColumns = 80;
constexpr unsigned kUsualRows = 24;

std::string_view key_of(std::string_view setting) { return setting.substr(0, setting.find('=')); }

// The common arguments and environment, changed for one rank and back again: copying the whole
// environment for each of many ranks would cost as much as starting some of them.
class Differences {
 public:
  Differences(const keeper::Spawn& spawn, SpawnOptions& options)
      : spawn_(spawn), options_(options) {
    options_.arguments.assign(spawn.arguments().begin(), spawn.arguments().end());
    options_.environment.assign(spawn.environment().begin(), spawn.environment().end());
    for (int i = 0; i < spawn.environment_size(); ++i) common_[key_of(spawn.environment(i))] = i;
  }

  void apply(const keeper::Spawn::Rank& rank) {
    undo();
    for (const std::string& argument : rank.arguments()) options_.arguments.push_back(argument);
    for (const std::string& setting : rank.environment()) {
      const auto common = common_.find(key_of(setting));
      if (common == common_.end()) {
        options_.environment.push_back(setting);
      } else {
        options_.environment[static_cast<size_t>(common->second)] = setting;
        replaced_.push_back(common->second);
      }
    }
  }

 private:
  void undo() {
    options_.arguments.resize(static_cast<size_t>(spawn_.arguments_size()));
    options_.environment.resize(static_cast<size_t>(spawn_.environment_size()));
    for (const int i : replaced_)
      options_.environment[static_cast<size_t>(i)] = spawn_.environment(i);
    replaced_.clear();
  }

  const keeper::Spawn& spawn_;
  SpawnOptions& options_;
  std::map<std::string_view, int> common_;
  std::vector<int> replaced_;
};

// What a rank gets as 0, 1 and 2, and what we keep of it.
struct Outputs {
  std::vector<Handle> ours;
  std::vector<Handle> theirs;
  std::vector<SpawnOptions::Inherit> inherit;
};

Result<Outputs> open_outputs(Processes& processes, const keeper::Spawn& spawn) {
  Outputs outputs;
  if (spawn.output() == keeper::Spawn::TERMINAL) {
    TRY(auto terminal, processes.terminal(spawn.columns() != 0 ? spawn.columns() : kUsualColumns,
                                          spawn.rows() != 0 ? spawn.rows() : kUsualRows));
    outputs.ours.push_back(std::move(terminal.ours));
    outputs.theirs.push_back(std::move(terminal.theirs));
    for (const int number : {kStandardInput, kStandardOutput, kStandardError})
      outputs.inherit.push_back({&outputs.theirs.front(), number});
  } else if (spawn.output() == keeper::Spawn::PIPES) {
    outputs.theirs.reserve(2);  // inherit points into it
    for (const int number : {kStandardOutput, kStandardError}) {
      TRY(auto pipe, processes.pipe());
      outputs.ours.push_back(std::move(pipe.reader));
      outputs.theirs.push_back(std::move(pipe.writer));
      outputs.inherit.push_back({&outputs.theirs.back(), number});
    }
  }
  return outputs;
}

Result<SpawnOptions> common_options(const keeper::Spawn& spawn, ProcessGroup* group) {
  if (spawn.arguments().empty()) return fail(Code::invalid, "no command to start");
  SpawnOptions options;
  options.folder = spawn.folder();
  options.group = group;
  if (spawn.has_user()) options.user = spawn.user();
  if (spawn.has_user_group()) options.user_group = spawn.user_group();
  options.nice = spawn.nice();
  options.open_files = spawn.open_files();
  // A session of its own: a rank that signals its process group reaches neither the keeper nor
  // other ranks, and a key pressed on our terminal reaches no rank but through the controller.
  options.new_session = true;
  options.controlling_terminal = spawn.output() == keeper::Spawn::TERMINAL;
  options.parent_death_signal = SIGKILL;
  return options;
}

Result<HeldRank> start_one(World& world, const keeper::Spawn& spawn, SpawnOptions& options,
                           size_t common_handles) {
  TRY(Outputs outputs, open_outputs(world.processes(), spawn));
  options.inherit.resize(common_handles);
  options.inherit.insert(options.inherit.end(), outputs.inherit.begin(), outputs.inherit.end());
  HeldRank held;
  held.started = world.clock().now();
  TRY(held.process, world.processes().spawn(options));
  held.outputs = std::move(outputs.ours);
  return held;
}

}  // namespace

Result<std::vector<HeldRank>> start_ranks(World& world, const keeper::Spawn& spawn,
                                          std::span<const Handle> handles, ProcessGroup* group) {
  TRY(SpawnOptions options, common_options(spawn, group));
  if (static_cast<size_t>(spawn.handle_numbers_size()) != handles.size())
    return fail(Code::invalid, "{} handles came with numbers for {}", handles.size(),
                spawn.handle_numbers_size());
  for (size_t i = 0; i < handles.size(); ++i)
    options.inherit.push_back({&handles[i], spawn.handle_numbers(static_cast<int>(i))});

  Differences differences(spawn, options);
  std::vector<HeldRank> started;
  started.reserve(static_cast<size_t>(spawn.ranks_size()));
  for (const keeper::Spawn::Rank& rank : spawn.ranks()) {
    differences.apply(rank);
    auto held = start_one(world, spawn, options, handles.size());
    if (!held) {
      for (HeldRank& other : started) (void)other.process->signal(SIGKILL);
      return fail(held.error().context(fmt::format("start rank {}", rank.rank())));
    }
    held->rank = rank.rank();
    started.push_back(std::move(*held));
  }
  return started;
}

}  // namespace tutti
