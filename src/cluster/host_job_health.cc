// How the processes of a job on a host are doing: whether they get on, whether services are well.
#include <algorithm>
#include <csignal>

#include "cluster/host_job.h"
#include "cluster/keeper_messages.h"

namespace tutti {
namespace {

// Of a job on a host that has nobody to look at.
constexpr Duration kLongestPause = 1s;

}  // namespace

// A process runs: it was started just now, or found by a new agent.
void HostJob::begins(ProcessId process, Local& local) {
  const Instant now = world_.clock().now();
  local.progress.begin(now);
  const job::Role& role = directive().spec().roles(static_cast<int>(numbers().role_of(process)));
  if (role.hang_after_ns() > 0)
    stalls_at_ = std::min(stalls_at_, now + look_pause(Duration(role.hang_after_ns())));
  if (!role.has_health()) return;
  HealthChecks::Owner& owner = *this;
  if (health_ == nullptr) health_ = std::make_unique<HealthChecks>(world_, owner);
  health_->watch(process, role.health());
}

void HostJob::stalls(Local& local, std::string why) {
  local.stalled = true;
  local.row().set_message(std::move(why));
  report_due_ = true;
}

// A rank that gets nowhere any more. Both its counters are signs of life.
void HostJob::look_for_stalls() {
  const Instant now = world_.clock().now();
  stalls_at_ = now + kLongestPause;
  if (pages_ == nullptr) return;
  for (auto& [process, local] : processes_) {
    const job::Role& role = directive().spec().roles(static_cast<int>(numbers().role_of(process)));
    if (role.hang_after_ns() <= 0 || local.phase != Phase::running) continue;
    const Duration hang_after(role.hang_after_ns());
    stalls_at_ = std::min(stalls_at_, now + look_pause(hang_after));
    const tutti_control_page* page = pages_->find(local.slot * kControlPageBytes);
    if (page == nullptr) continue;
    const auto silent = local.progress.look(progress_of(*page) + step_of(*page), now, hang_after);
    if (!silent || local.stalled || local.stopping) continue;
    stalls(local, fmt::format("made no progress for {}", format_duration(*silent)));
  }
  pages_->rest();
}

void HostJob::on_health() {
  for (auto& [process, local] : processes_) {
    if (local.phase != Phase::running || local.stopping) continue;
    std::string ill = health_->ill(process);
    if (!ill.empty() && !local.stalled) stalls(local, std::move(ill));
    if (health_->well(process) && !std::exchange(local.well, true)) report_due_ = true;
  }
  alarm_.ring();
}

// In the job's containment, with what its process was given; what it prints is nobody's.
void HostJob::run_check(ProcessId process) {
  if (keeper_ == nullptr) return health_->on_command(process, "its keeper is gone");
  const size_t role = numbers().role_of(process);
  keeper::Spawn spawn = common_spawn(role);
  add_epoch_settings(role, spawn);
  spawn.set_epoch(epoch());
  *spawn.mutable_arguments() = directive().spec().roles(static_cast<int>(role)).health().command();
  spawn.set_output(keeper::Spawn::NOTHING);
  spawn.clear_control_arena();
  spawn.clear_show_heap();
  add_rank(process, spawn).set_rank(kFirstCheck + process);
  asked_.push_back({.processes = RangeSet(kFirstCheck + process)});
  keeper_->send(KeeperMessage::spawn, spawn);
}

void HostJob::kill_check(ProcessId process) {
  if (keeper_ == nullptr) return;
  keeper::End end;
  end.add_ranks(kFirstCheck + process);
  end.set_number(SIGKILL);
  keeper_->send(KeeperMessage::end, end);
}

void HostJob::on_check_exited(const keeper::Exited::Rank& rank) {
  acknowledge(rank.sequence());
  const Exit exit = to_exit(rank);
  if (health_ == nullptr) return;
  health_->on_command(rank.rank() - kFirstCheck,
                      exit.ok() ? "" : fmt::format("its check ended with {}", exit.text()));
}

void HostJob::on_check_refused(uint32_t rank, const Error& why) {
  if (health_ != nullptr) health_->on_command(rank - kFirstCheck, why.text());
}

// Whether the keeper has tried all that it was told to start, but for checks.
bool HostJob::all_tried() const {
  return pending_.empty() && !adopting_ && std::ranges::none_of(asked_, [](const Asked& asked) {
           return asked.what == Asked::What::assign ||
                  (asked.what == Asked::What::ranks && !is_check(asked.processes.front()));
         });
}

}  // namespace tutti
