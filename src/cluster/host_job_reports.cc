// What a job on a host tells its coordinator.
#include <algorithm>

#include "cluster/host_job.h"
#include "cluster/report_fold.h"

namespace tutti {
namespace {

// Links of the tree heal within two seconds.
constexpr Duration kResendPause = 1s;
// A job whose end we missed is noticed by asking.
constexpr Duration kCheckInPause = 10s;
// Reports that nobody answered until the head is asked who coordinates the job.
constexpr int kFruitlessReports = 3;

}  // namespace

bool HostJob::anything_untold() const {
  return std::ranges::any_of(processes_, [](const auto& entry) {
    return entry.second.phase == Phase::exited && !entry.second.told;
  });
}

// All of it, or what the coordinator may not know yet.
cluster::JobReport HostJob::make_report(bool all) const {
  cluster::JobReport report;
  report.set_job(job_);
  std::map<std::pair<uint64_t, uint64_t>, RangeSet> running;  // by epoch, and that of its gang
  const RangeSet here(host_.node());
  for (const auto& [process, local] : processes_) {
    if (local.phase == Phase::running)
      running[{local.epoch, gang_epoch(numbers().role_of(process))}].add(process);
    if (local.phase == Phase::exited && (all || !local.told)) {
      cluster::Row row = local.row();
      row.set_epoch(local.epoch);
      set_pairs(RangeSet(process), row.mutable_processes());
      set_pairs(here, row.mutable_hosts());
      *report.add_rows() = std::move(row);
    }
    if (local.phase != Phase::running) continue;
    const std::pair<cluster::Row::What, bool> states[] = {{cluster::Row::WELL, local.well},
                                                          {cluster::Row::STALLED, local.stalled},
                                                          {cluster::Row::FAILING, local.failing}};
    for (const auto& [what, is_so] : states) {
      if (!is_so) continue;
      cluster::Row& row = *report.add_rows();
      row.set_what(what);
      row.set_epoch(local.epoch);
      if (what == cluster::Row::STALLED) row.set_message(local.row().message());
      set_pairs(RangeSet(process), row.mutable_processes());
      set_pairs(here, row.mutable_hosts());
    }
  }
  for (const auto& [since, processes] : running) {
    cluster::Row& started = *report.add_rows();
    started.set_what(cluster::Row::STARTED);
    started.set_epoch(since.first);
    started.set_gang_epoch(since.second);
    set_pairs(processes, started.mutable_processes());
    set_pairs(here, started.mutable_hosts());
  }
  // Confirms the directive, if all of it was tried and all is told; else says only who we are.
  cluster::Row& row = *report.add_rows();
  row.set_what(cluster::Row::STARTED);
  set_pairs(here, row.mutable_hosts());
  if (all && all_tried()) {
    row.set_epoch(epoch());
    row.set_count(directive_.revision() + 1);
  }
  if (all && exchange_ != nullptr && !adopting_) exchange_->add_rows(report, host_.node(), true);
  fold_rows(report);
  return report;
}

void HostJob::send_report(bool all) {
  report_due_ = false;
  note_progress();
  const cluster::JobReport report = make_report(all);
  if (all && all_tried()) confirmed_ = true;
  host_.report(directive().coordinator(), report);
  const auto jitter = static_cast<int64_t>(world_.random().below(to_ns(kCheckInPause)));
  resend_at_ = world_.clock().now() + kCheckInPause / 2 + Duration(jitter);
  if (!anything_untold()) return;
  resend_at_ = world_.clock().now() + kResendPause;
  if (++fruitless_ > kFruitlessReports) host_.report_to_head(report);
}

std::string HostJob::text() const {
  return fmt::format("epoch {:x}.{}, {} processes, running {}, pending {}, {} spawns asked{}{}{}{}",
                     epoch(), directive_.revision(), processes_.size(), running().text(),
                     pending_.text(), asked_.size(), keeper_ == nullptr ? ", no keeper" : "",
                     end_ ? ", ending" : "", resetting_ ? ", resetting" : "",
                     adopting_ ? ", adopting" : "");
}

std::string HostJob::health_text(ProcessId process, const Local& local) const {
  if (local.phase != Phase::running) return "";
  if (local.stalled) return local.row().message();
  return health_ == nullptr ? "" : health_->text(process);
}

cluster::ProcessInfo HostJob::info_of(ProcessId process, const Local& local) const {
  cluster::ProcessInfo info;
  const size_t role = numbers().role_of(process);
  info.set_job(job_);
  info.set_process(process);
  info.set_epoch(local.epoch);
  info.set_pid(local.pid);
  info.set_role(directive().spec().roles(static_cast<int>(role)).name());
  info.set_restarts(local.restarts);
  info.set_index(numbers().index_of(process));
  info.set_host(host_.node());
  const bool left = !left_behind().empty() && local.phase != Phase::exited;
  info.set_state(left                            ? "left behind"
                 : local.phase == Phase::running ? "running"
                 : local.phase == Phase::exited  ? "exited"
                                                 : "starting");
  info.set_health(health_text(process, local));
  info.set_from_spare(local.from_spare);
  const tutti_control_page* page =
      pages_ == nullptr ? nullptr : pages_->find(local.slot * kControlPageBytes);
  if (page == nullptr) return info;
  info.set_progress(progress_of(*page));
  info.set_step(step_of(*page));
  pages_->rest();
  return info;
}

void HostJob::describe(std::vector<cluster::ProcessInfo>& into) const {
  for (const auto& [process, local] : processes_) into.push_back(info_of(process, local));
  for (const auto& [number, spare] : spares_.get()) {
    cluster::ProcessInfo& info = into.emplace_back();
    info.set_job(job_);
    info.set_process(numbers().number(spare.role, 0));
    info.set_pid(spare.pid);
    info.set_role(directive().spec().roles(static_cast<int>(spare.role)).name());
    info.set_host(host_.node());
    info.set_spare(true);
    info.set_state(spare.ready ? "ready" : "starting");
  }
}

}  // namespace tutti
