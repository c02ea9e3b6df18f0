#include "cluster/rank_starter.h"

#include <algorithm>
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

// What the keeper alone sets: a job within a job must not inherit the outer one's.
bool is_ours(std::string_view key) {
  return key == TUTTI_CONTROL_FD_VARIABLE || key == TUTTI_CONTROL_OFFSET_VARIABLE ||
         key == kSpareVariable || key == kHeapVariable;
}

// The common arguments and environment, changed for one rank and back again: copying the whole
// environment for each of many ranks would cost as much as starting some of them.
class Differences {
 public:
  Differences(const keeper::Spawn& spawn, SpawnOptions& options) : options_(options) {
    options_.arguments.assign(spawn.arguments().begin(), spawn.arguments().end());
    options_.environment.reserve(static_cast<size_t>(spawn.environment_size()));
    for (const std::string& setting : spawn.environment()) {
      if (is_ours(key_of(setting))) continue;
      common_[key_of(setting)] = options_.environment.size();
      options_.environment.push_back(setting);
    }
    arguments_ = options_.arguments.size();
    settings_ = options_.environment.size();
  }

  void apply(const keeper::Spawn::Rank& rank) {
    undo();
    for (const std::string& argument : rank.arguments()) options_.arguments.push_back(argument);
    for (const std::string& setting : rank.environment())
      if (!is_ours(key_of(setting))) set(setting);
  }
  void set(std::string setting) {
    const auto common = common_.find(key_of(setting));
    if (common == common_.end()) {
      options_.environment.push_back(std::move(setting));
    } else {
      std::string& place = options_.environment[common->second];
      replaced_.emplace_back(common->second, std::exchange(place, std::move(setting)));
    }
  }

 private:
  void undo() {
    options_.arguments.resize(arguments_);
    options_.environment.resize(settings_);
    while (!replaced_.empty()) {
      options_.environment[replaced_.back().first] = std::move(replaced_.back().second);
      replaced_.pop_back();
    }
  }

  SpawnOptions& options_;
  size_t arguments_ = 0;
  size_t settings_ = 0;
  std::map<std::string_view, size_t> common_;  // keys are the message's
  std::vector<std::pair<size_t, std::string>> replaced_;
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

// Numbers for the handles that the keeper adds: the first that the controller did not give away.
int free_number(const SpawnOptions& options) {
  int number = kStandardError + 1;
  const auto taken = [&](const SpawnOptions::Inherit& one) { return one.number == number; };
  while (std::ranges::any_of(options.inherit, taken)) ++number;
  return number;
}

class Starter {
 public:
  Starter(World& world, const keeper::Spawn& spawn, HeldArena* arena, const HeldArena* heap,
          SpawnOptions options)
      : world_(world),
        spawn_(spawn),
        arena_(arena),
        options_(std::move(options)),
        differences_(spawn_, options_) {
    if (arena_ != nullptr) {
      control_number_ = free_number(options_);
      options_.inherit.push_back({&arena_->handle, control_number_});
    }
    if (heap != nullptr) {
      heap_number_ = free_number(options_);
      options_.inherit.push_back({&heap->handle, heap_number_});
    }
    common_handles_ = options_.inherit.size();
    spare_number_ = free_number(options_);
  }

  Result<HeldRank> start(const keeper::Spawn::Rank& rank) {
    HeldRank held;
    held.name = {rank.spare(), rank.rank()};
    held.arena = arena_;
    differences_.apply(rank);
    options_.inherit.resize(common_handles_);
    TRY(Outputs outputs, open_outputs(world_.processes(), spawn_));
    options_.inherit.insert(options_.inherit.end(), outputs.inherit.begin(), outputs.inherit.end());
    Handle wait_here;
    if (rank.spare()) {
      TRY(Network::Pair pair, world_.network().pair());
      held.assignment = std::move(pair.ours);
      wait_here = std::move(pair.theirs);
      options_.inherit.push_back({&wait_here, spare_number_});
      differences_.set(fmt::format("{}={}", kSpareVariable, spare_number_));
    }
    TRY_DO(give_page(rank, held));
    held.started = world_.clock().now();
    held.epoch = spawn_.epoch();
    auto process = world_.processes().spawn(options_);
    if (!process) {
      if (held.control_offset) arena_->pages->erase(*held.control_offset);
      return fail(std::move(process).error());
    }
    held.process = std::move(*process);
    held.outputs = std::move(outputs.ours);
    return held;
  }

 private:
  Result<void> give_page(const keeper::Spawn::Rank& rank, HeldRank& held) {
    if (arena_ == nullptr) return {};
    differences_.set(fmt::format("{}={}", TUTTI_CONTROL_FD_VARIABLE, control_number_));
    if (heap_number_ != 0) differences_.set(fmt::format("{}={}", kHeapVariable, heap_number_));
    if (!rank.has_control_offset()) return {};
    const uint64_t offset = rank.control_offset();
    TRY_DO(arena_->pages->initialise(offset, rank.rank(), spawn_.epoch()));
    differences_.set(fmt::format("{}={}", TUTTI_CONTROL_OFFSET_VARIABLE, offset));
    held.control_offset = offset;
    return {};
  }

  World& world_;
  const keeper::Spawn& spawn_;
  HeldArena* arena_;
  SpawnOptions options_;
  Differences differences_;
  size_t common_handles_ = 0;
  int control_number_ = 0;
  int heap_number_ = 0;
  int spare_number_ = 0;
};

}  // namespace

Result<std::vector<HeldRank>> start_ranks(World& world, const keeper::Spawn& spawn,
                                          std::span<const Handle> handles, ProcessGroup* group,
                                          HeldArena* arena, const HeldArena* heap) {
  TRY(SpawnOptions options, common_options(spawn, group));
  if (static_cast<size_t>(spawn.handle_numbers_size()) != handles.size())
    return fail(Code::invalid, "{} handles came with numbers for {}", handles.size(),
                spawn.handle_numbers_size());
  for (size_t i = 0; i < handles.size(); ++i)
    options.inherit.push_back({&handles[i], spawn.handle_numbers(static_cast<int>(i))});

  Starter starter(world, spawn, arena, heap, std::move(options));
  std::vector<HeldRank> started;
  started.reserve(static_cast<size_t>(spawn.ranks_size()));
  for (const keeper::Spawn::Rank& rank : spawn.ranks()) {
    auto held = starter.start(rank);
    if (!held) {
      for (HeldRank& other : started) {
        (void)other.process->signal(SIGKILL);
        if (other.control_offset) arena->pages->erase(*other.control_offset);
      }
      const RankName name{rank.spare(), rank.rank()};
      return fail(held.error().context(fmt::format("start {}", name.text())));
    }
    started.push_back(std::move(*held));
  }
  return started;
}

}  // namespace tutti
