// The spares of a job on a host: complete processes, parked, that take the place of ranks which are
// started. They are the keeper's; an agent that comes back finds them there.
#include <algorithm>

#include "base/log.h"
#include "cluster/host_job.h"
#include "cluster/spare_command.h"
#include "world/fault.h"

namespace tutti {
namespace {

// A spare's number tells its role, also to the next agent.
constexpr uint32_t kRoleShift = 16;
// A spare that dies by itself is likely to do so again.
constexpr Duration kFirstPause = 1s;
constexpr Duration kLongestPause = 1min;

}  // namespace

// Whether a rank of the role may yet be started here.
bool HostJob::needs_spares(size_t role) const {
  const RangeSet here = processes_on(numbers(), directive().layout(), RangeSet(host_.node()));
  const auto may_start = [&](ProcessId process) {
    const auto known = processes_.find(process);
    return known == processes_.end() || known->second.phase != Phase::exited ||
           known->second.row().exit().error() != job::NONE || known->second.row().exit().by_us();
  };
  const std::vector<uint32_t> members = here.common(numbers().of_role(role)).members();
  return std::ranges::any_of(members, may_start);
}

// Ranks come first: spares are started when nothing else is on its way. What is wakes us when it is
// over, so until then there is nothing to be woken for.
void HostJob::tend_spares() {
  spares_at_ = kNever;
  if (keeper_ == nullptr || adopting_ || directive_.empty() || !pending_.empty() || !asked_.empty())
    return;
  const Instant now = world_.clock().now();
  for (size_t role = 0; role < numbers().roles(); ++role) {
    const uint32_t wanted = directive().spec().roles(static_cast<int>(role)).spares();
    if (wanted == 0) continue;
    uint32_t alive = 0;
    for (const auto& [number, spare] : spares_.get()) alive += spare.role == role ? 1 : 0;
    if (!needs_spares(role)) {
      end_spares(role);
    } else if (alive < wanted && spare_pauses_.change()[role].until <= now) {
      spawn_spares(role, wanted - alive);
    } else if (alive < wanted) {
      spares_at_ = std::min(spares_at_, spare_pauses_.change()[role].until);
    }
  }
}

void HostJob::spawn_spares(size_t role, uint32_t count) {
  auto command = spare_command(directive().spec().roles(static_cast<int>(role)));
  if (!command) return;  // the job's rules refuse it
  make_arena();
  keeper::Spawn spawn = common_spawn(role);
  for (const std::string& word : *command) spawn.add_arguments(word);
  auto number = static_cast<uint32_t>(role << kRoleShift);
  for (uint32_t i = 0; i < count; ++i, ++number) {
    while (spares_.get().contains(number)) ++number;
    if (number >> kRoleShift != role) return;
    keeper::Spawn::Rank& rank = *spawn.add_ranks();
    rank.set_rank(number);
    rank.set_spare(true);
    rank.add_environment(fmt::format("TUTTI_SPARE={}", number));
    spares_.change()[number].role = role;
  }
  asked_.push_back({.what = Asked::What::spares});
  keeper_->send(KeeperMessage::spawn, spawn);
}

void HostJob::end_spares(size_t role) {
  keeper::End end;
  for (auto& [number, spare] : spares_.change()) {
    if (spare.role != role || std::exchange(spare.leaving, true)) continue;
    end.add_spares(number);
  }
  if (end.spares_size() != 0) keeper_->send(KeeperMessage::end, end);
}

// The keeper could not start them: the next try is as after a death.
void HostJob::forget_unstarted_spares() {
  for (auto spare = spares_.change().begin(); spare != spares_.change().end();) {
    if (spare->second.pid != 0) {
      ++spare;
      continue;
    }
    pause_spares(spare->second.role);
    spare = spares_.change().erase(spare);
  }
}

void HostJob::pause_spares(size_t role) {
  SparePause& pause = spare_pauses_.change()[role];
  pause.length = std::clamp(2 * pause.length, kFirstPause, kLongestPause);
  pause.until = world_.clock().now() + pause.length;
}

// Started by us, or by an agent before us: then it had its time to get ready.
void HostJob::on_spare_spawned(const keeper::Spawned::Rank& rank, std::vector<Handle> outputs) {
  if (rank.ended()) return;
  Spare& spare = spares_.change()[rank.rank()];
  spare.role = rank.rank() >> kRoleShift;
  spare.pid = static_cast<pid_t>(rank.pid());
  spare.outputs = std::move(outputs);
  spare.ready = spare.ready || adopting_;
}

void HostJob::on_spare_ready(uint32_t number) {
  const auto found = spares_.change().find(number);
  if (found == spares_.change().end()) return;
  found->second.ready = true;
  spare_pauses_.change().erase(found->second.role);
}

void HostJob::on_spare_exited(const keeper::Exited::Rank& rank) {
  acknowledge(rank.sequence());
  const auto found = spares_.change().find(rank.rank());
  if (found == spares_.change().end()) return;
  const Spare spare = std::move(found->second);
  spares_.change().erase(found);
  if (spare.leaving) return;
  TUTTI_LOG(warn, "a spare ended",
            {{"job", job_}, {"code", rank.code()}, {"signal", rank.signal()}});
  pause_spares(spare.role);
}

// Gives ready spares to as many of these as there are; the others are left.
RangeSet HostJob::assign_spares(size_t role, const RangeSet& processes) {
  if (spares_.get().empty()) return processes;
  RangeSet left = processes;
  for (auto& [number, spare] : spares_.change()) {
    if (left.empty()) break;
    if (spare.role != role || !spare.ready || spare.leaving) continue;
    const ProcessId process = left.front();
    left.remove(process);
    spare.leaving = true;
    keeper::Spawn one;
    add_rank(process, one);
    add_epoch_settings(role, one);
    keeper::Assign assign;
    assign.set_spare(number);
    assign.set_rank(process);
    assign.set_epoch(epoch());
    *assign.mutable_environment() = one.environment();
    assign.mutable_environment()->MergeFrom(one.ranks(0).environment());
    const uint64_t slot = processes_[process].slot;
    if (slot < pages_capacity_) assign.set_control_offset(slot * kControlPageBytes);
    asked_.push_back(
        {.what = Asked::What::assign, .processes = RangeSet(process), .spare = number});
    keeper_->send(KeeperMessage::assign, assign);
  }
  return left;
}

void HostJob::on_assigned(const Asked& asked) {
  const ProcessId process = asked.processes.front();
  const auto found = spares_.change().find(asked.spare);
  if (found == spares_.change().end()) return;
  Spare spare = std::move(found->second);
  spares_.change().erase(found);
  Local& local = processes_[process];
  local.pid = spare.pid;
  local.from_spare = true;
  TUTTI_PROBE("host job: a spare took a rank");
  if (local.phase == Phase::starting) {
    local.phase = Phase::running;
    begins(process, local);
  }
  TUTTI_LOG(info, "a spare took a rank", {{"job", job_}, {"process", process}, {"pid", spare.pid}});
  cluster::ProcessEvent started;
  started.set_process(process);
  started.set_pid(spare.pid);
  started.set_epoch(local.epoch);
  started.set_from_spare(true);
  output_->note(std::move(started));
  for (size_t i = 0; i < spare.outputs.size(); ++i)
    (void)output_->read_from(process, static_cast<uint8_t>(i + 1), std::move(spare.outputs[i]));
  report_due_ = true;
}

// It died on the way, or does not take anything: the rank is started as if there had been none.
void HostJob::on_not_assigned(const Asked& asked, const Error& why) {
  TUTTI_LOG(warn, "a spare took no rank", {{"job", job_}, {"why", why.text()}});
  const ProcessId process = asked.processes.front();
  Local& local = processes_[process];
  TUTTI_PROBE("host job: a spare did not live to take its rank");
  if (!local.stopping && !end_ && local.epoch == epoch()) {
    spawn_cold(numbers().role_of(process), asked.processes);
    return;
  }
  // What is to run here now is in a newer directive, which we have or are about to obey.
  local.phase = Phase::exited;
  local.stopping = false;
  local.row().set_what(cluster::Row::EXITED);
  local.row().mutable_exit()->set_by_us(true);
  report_due_ = true;
}

}  // namespace tutti
