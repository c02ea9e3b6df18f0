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
      // What is said later counts: programs would read the first of two.
      const auto [place, first] = common_.try_emplace(key_of(setting), options_.environment.size());
      if (first) {
        options_.environment.push_back(setting);
      } else {
        options_.environment[place->second] = setting;
      }
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

  // Everything but the process.
  Result<void> prepare(const keeper::Spawn::Rank& rank) {
    held_ = HeldRank();
    held_.name = {rank.spare(), rank.rank()};
    held_.arena = arena_;
    differences_.apply(rank);
    options_.inherit.resize(common_handles_);
    TRY(outputs_, open_outputs(world_.processes(), spawn_));
    options_.inherit.insert(options_.inherit.end(), outputs_.inherit.begin(),
                            outputs_.inherit.end());
    if (rank.spare()) {
      TRY(Network::Pair pair, world_.network().pair());
      held_.assignment = std::move(pair.ours);
      wait_here_ = std::move(pair.theirs);
      options_.inherit.push_back({&wait_here_, spare_number_});
      differences_.set(fmt::format("{}={}", kSpareVariable, spare_number_));
    }
    TRY_DO(give_page(rank, held_));
    held_.started = world_.clock().now();
    held_.epoch = spawn_.epoch();
    return {};
  }
  const SpawnOptions& options() const { return options_; }
  // What it was prepared for has been started, or was not.
  HeldRank finish(std::unique_ptr<Process> process) {
    held_.process = std::move(process);
    held_.outputs = std::move(outputs_.ours);
    outputs_.theirs.clear();
    wait_here_ = Handle();
    return std::move(held_);
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
  // Of the one that is prepared.
  HeldRank held_;
  Outputs outputs_;
  Handle wait_here_;
};

using Starters = std::vector<std::unique_ptr<Starter>>;

// As many of the ranks as there are starters. Into `started` goes what began, also of those where
// one failed.
Result<void> start_some(World& world, const keeper::Spawn& spawn, int first, Starters& starters,
                        std::vector<HeldRank>& started) {
  std::vector<const SpawnOptions*> options;
  Result<void> outcome;
  const auto name_at = [&](size_t index) {
    const keeper::Spawn::Rank& rank = spawn.ranks(first + static_cast<int>(index));
    return RankName{rank.spare(), rank.rank()}.text();
  };
  for (size_t i = 0; i < starters.size() && outcome; ++i) {
    auto prepared = starters[i]->prepare(spawn.ranks(first + static_cast<int>(i)));
    if (!prepared) outcome = fail(prepared.error().context("start " + name_at(i)));
    options.push_back(&starters[i]->options());
  }
  if (!outcome) options.clear();
  Processes::Spawns spawns = world.processes().spawn_all(options);
  for (size_t i = 0; i < starters.size(); ++i) {
    const bool begun = i < spawns.size() && spawns[i];
    HeldRank held = starters[i]->finish(begun ? std::move(*spawns[i]) : nullptr);
    if (begun) {
      started.push_back(std::move(held));
      continue;
    }
    if (held.control_offset) held.arena->pages->erase(*held.control_offset);
    if (i < spawns.size() && outcome && spawns[i].error().code() != Code::cancelled)
      outcome = fail(spawns[i].error().context("start " + name_at(i)));
  }
  return outcome;
}

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

  const auto count = static_cast<size_t>(spawn.ranks_size());
  Starters starters;
  for (size_t i = 0; i < std::min(count, kRanksAtOnce); ++i)
    starters.push_back(std::make_unique<Starter>(world, spawn, arena, heap, options));
  std::vector<HeldRank> started;
  started.reserve(count);
  for (size_t first = 0; first < count; first += starters.size()) {
    starters.resize(std::min(count - first, starters.size()));
    auto some = start_some(world, spawn, static_cast<int>(first), starters, started);
    if (some) continue;
    for (HeldRank& other : started) {
      (void)other.process->signal(SIGKILL);
      if (other.control_offset) arena->pages->erase(*other.control_offset);
    }
    return fail(std::move(some).error());
  }
  return started;
}

}  // namespace tutti
