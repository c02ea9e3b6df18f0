// How the processes of a job are started on a host.
#include <algorithm>

#include "cluster/host_job.h"

namespace tutti {
namespace {

// Where a process stands among those of its role.
struct Standing {
  uint32_t index;
  uint32_t count;
  uint64_t local_index;
  uint64_t local_count;
  uint64_t node_index;
  uint64_t node_count;
};

Standing standing_of(const JobNumbers& numbers, const Segments& layout, NodeId node,
                     ProcessId process) {
  const size_t role = numbers.role_of(process);
  const RangeSet here = processes_on(numbers, layout, RangeSet(node)).common(numbers.of_role(role));
  RangeSet nodes;
  for (const cluster::Segment& segment : layout)
    if (segment.role() == numbers.place_role(role))
      nodes.add(segment.first_node(), segment.last_node());
  return {numbers.index_of(process), numbers.count(role), here.place_of(process), here.size(),
          nodes.place_of(node),      nodes.size()};
}

// As torchrun names them, and our own.
void add_standing(const Standing& standing, const std::string& role, keeper::Spawn::Rank& rank) {
  const auto set = [&](const char* key, uint64_t value) {
    rank.add_environment(fmt::format("{}={}", key, value));
  };
  set("RANK", standing.index);
  set("ROLE_RANK", standing.index);
  set("LOCAL_RANK", standing.local_index);
  set("WORLD_SIZE", standing.count);
  set("ROLE_WORLD_SIZE", standing.count);
  set("LOCAL_WORLD_SIZE", standing.local_count);
  set("NODE_RANK", standing.node_index);
  set("GROUP_RANK", standing.node_index);
  set("GROUP_WORLD_SIZE", standing.node_count);
  rank.add_environment(fmt::format("ROLE_NAME={}", role));
}

// What a role says of itself is worth more than our choice; what a job took over from the shell
// that submitted it is not.
void set_unless_said(std::string_view key, std::string_view value, const job::Role& role,
                     keeper::Spawn& spawn) {
  const std::string start = fmt::format("{}=", key);
  const auto said = [&](const std::string& setting) { return setting.starts_with(start); };
  if (std::ranges::none_of(role.environment(), said))
    spawn.add_environment(fmt::format("{}{}", start, value));
}

}  // namespace

uint32_t HostJob::slot_for(ProcessId process) {
  const auto known = processes_.find(process);
  if (known != processes_.end() && known->second.slot != kNoSlot) return known->second.slot;
  const auto free = std::ranges::find(slots_, false);
  const auto slot = static_cast<size_t>(free - slots_.begin());
  if (free == slots_.end()) slots_.push_back(false);
  slots_[slot] = true;
  return static_cast<uint32_t>(slot);
}

keeper::Spawn::Rank& HostJob::add_rank(ProcessId process, keeper::Spawn& spawn) const {
  const size_t index = numbers().role_of(process);
  const job::Role& role = directive().spec().roles(static_cast<int>(index));
  keeper::Spawn::Rank& rank = *spawn.add_ranks();
  rank.set_rank(process);
  add_standing(standing_of(numbers(), directive().layout(), host_.node(), process), role.name(),
               rank);
  rank.add_environment(fmt::format("TUTTI_PROCESS={}", process));
  return rank;
}

void HostJob::make_arena() {
  if (pages_capacity_ != 0) return;
  // Twice what is here now: a lost host's processes may come to this one.
  pages_capacity_ = static_cast<uint32_t>(
      2 * processes_on(numbers(), directive().layout(), RangeSet(host_.node())).size());
  keeper::CreateArena arena;
  arena.set_name(kControlArena);
  arena.set_size_bytes(pages_capacity_ * kControlPageBytes);
  asked_.push_back({.what = Asked::What::arena});
  keeper_->send(KeeperMessage::create_arena, arena);
}

// What differs between the epochs of a job.
void HostJob::add_epoch_settings(size_t index, keeper::Spawn& spawn) const {
  const job::Role& role = directive().spec().roles(static_cast<int>(index));
  set_unless_said("MASTER_ADDR", directive().master_address(), role, spawn);
  set_unless_said("MASTER_PORT", fmt::format("{}", directive().master_port()), role, spawn);
  spawn.add_environment(fmt::format("TUTTI_EPOCH={}", epoch()));
}

// Whatever the processes and spares of a role have in common.
keeper::Spawn HostJob::common_spawn(size_t index) const {
  const job::Spec& spec = directive().spec();
  const job::Role& role = spec.roles(static_cast<int>(index));
  keeper::Spawn spawn;
  spawn.set_job(job_);
  *spawn.mutable_environment() = spec.environment();
  for (const std::string& setting : role.environment()) spawn.add_environment(setting);
  spawn.add_environment(fmt::format("TUTTI_JOB={}", job_));
  spawn.add_environment(fmt::format("{}={}", kKeeperVariable, keeper_->path()));
  const bool of_other = run_as_ != nullptr;
  if (!of_other) spawn.add_environment(fmt::format("TUTTI_AGENT={}", host_.agent_socket()));
  spawn.add_environment(fmt::format("{}={}", kExchangeVariable, host_.exchange_socket(of_other)));
  spawn.set_folder(role.folder().empty() ? spec.folder() : role.folder());
  if (of_other) {
    spawn.set_user(run_as_->user);
    // As a login would have it: what the job brought along may be of another host, or of root.
    for (const char* name : {"USER", "LOGNAME"})
      spawn.add_environment(fmt::format("{}={}", name, run_as_->name));
    spawn.add_environment(fmt::format("HOME={}", run_as_->home));
    spawn.add_environment(fmt::format("SHELL={}", run_as_->shell));
  }
  spawn.set_open_files(spec.open_files());
  spawn.set_nice(host_.rank_nice());
  spawn.set_control_arena(kControlArena);
  // A process that is alone waits for nobody.
  spawn.set_show_heap(looks_ == nullptr && numbers().size() > 1);
  return spawn;
}

// One message per role: what its processes have in common travels once.
void HostJob::send_spawn(const RangeSet& processes) {
  make_arena();
  for (size_t role = 0; role < numbers().roles(); ++role) {
    const RangeSet mine = processes.common(numbers().of_role(role));
    if (mine.empty()) continue;
    const RangeSet left = assign_spares(role, mine);
    if (!left.empty()) spawn_cold(role, left);
  }
}

void HostJob::spawn_cold(size_t role, const RangeSet& processes) {
  keeper::Spawn spawn = common_spawn(role);
  *spawn.mutable_arguments() = directive().spec().roles(static_cast<int>(role)).command();
  add_epoch_settings(role, spawn);
  spawn.set_epoch(epoch());
  for (const ProcessId process : processes.members()) {
    keeper::Spawn::Rank& rank = add_rank(process, spawn);
    const uint64_t slot = processes_[process].slot;
    if (slot < pages_capacity_) rank.set_control_offset(slot * kControlPageBytes);
  }
  asked_.push_back({.what = Asked::What::ranks, .processes = processes});
  keeper_->send(KeeperMessage::spawn, spawn);
}

}  // namespace tutti
