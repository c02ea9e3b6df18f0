#include "cli/job_report.h"

#include "cluster/coordinator.h"
#include "cluster/job_layout.h"
#include "cluster/rank_list.h"
#include "cluster/supervision.h"

namespace tutti::cli {
namespace {

Exit exit_of(const cluster::Exit& told) {
  Exit exit;
  exit.code = told.code();
  exit.signal = told.signal();
  exit.user_time = Duration(told.user_time_ns());
  exit.system_time = Duration(told.system_time_ns());
  exit.peak_memory_bytes = told.peak_memory_bytes();
  exit.out_of_memory = told.error() == job::OUT_OF_MEMORY;
  return exit;
}

}  // namespace

JobTeller::JobTeller(GangListener& listener, uint32_t processes) : listener_(listener) {
  report_.ranks.resize(processes);
  epochs_.resize(processes);
}

void JobTeller::on_event(const cluster::ProcessEvent& event) {
  if (!knows(event.process()) || event.epoch() < epochs_[event.process()]) return;
  epochs_[event.process()] = event.epoch();
  RankReport& rank = report_.ranks[event.process()];
  const auto pid = static_cast<pid_t>(event.pid());
  if (rank.pid != pid) {
    rank = RankReport{.pid = pid};
    listener_.on_started(event.process(), pid, event.from_spare());
  }
  if (!event.has_exit() || rank.exit) return;
  rank.exit = exit_of(event.exit());
  rank.exit->core_dumped = event.core_dumped();
  rank.sequence = ++exits_;
  rank.last_signal_sent = event.signal_sent();
  rank.outlived_grace = event.outlived_grace();
  rank.signalled_by = event.signalled_by();
  rank.lived = Duration(event.exit().lived_ns());
  listener_.on_exit(event.process(), rank);
}

void JobTeller::begin_end(GangEnd end) {
  report_.end = end;
  for (uint32_t rank = 0; rank < report_.ranks.size(); ++rank)
    if (report_.ranks[rank].pid != 0 && !report_.ranks[rank].exit) report_.running.push_back(rank);
  listener_.on_ending(report_);
}

void JobTeller::tell_failure(const cluster::JobInfo& info) {
  const cluster::Row& culprit = info.culprit();
  const RangeSet processes = set_from(culprit.processes()).value_or(RangeSet());
  const job::ErrorClass error = culprit.exit().error();
  if (error == job::NOT_STARTED) {
    report_.end = GangEnd::not_started;
    report_.error.emplace(static_cast<Code>(culprit.count()), culprit.message());
    return;
  }
  const bool exited = !processes.empty() && knows(processes.front()) &&
                      (culprit.exit().code() != 0 || culprit.exit().signal() != 0);
  if (!exited) {
    report_.end = GangEnd::keeper_lost;
    const std::string who =
        processes.empty() ? std::string() : format_ranks(processes.members()) + ": ";
    report_.error.emplace(Code::unavailable,
                          fmt::format("job {} failed: {}{}", info.job(), who, info.why()));
    return;
  }
  // Of several that failed at once, the first to be noticed.
  uint32_t first = processes.front();
  for (const uint32_t rank : processes.members())
    if (knows(rank) && report_.ranks[rank].exit && report_.ranks[first].exit &&
        report_.ranks[rank].sequence < report_.ranks[first].sequence)
      first = rank;
  report_.end = GangEnd::rank_failed;
  report_.culprit = first;
  if (!report_.ranks[first].exit || report_.ranks[first].exit->ok())
    report_.ranks[first].exit = exit_of(culprit.exit());
}

GangReport JobTeller::finish(const Result<cluster::JobInfo>& info,
                             std::optional<GangEnd> ended_by_us) {
  if (report_.running.empty())
    for (uint32_t rank = 0; rank < report_.ranks.size(); ++rank)
      if (report_.ranks[rank].last_signal_sent != 0) report_.running.push_back(rank);
  if (!info) {
    report_.end = ended_by_us.value_or(GangEnd::not_started);
    report_.error = info.error();
    return std::move(report_);
  }
  for (const cluster::Row& row : info->leftovers())
    report_.not_ended.emplace(Code::exhausted, row.message());
  switch (info->state()) {
    case cluster::SUCCEEDED: report_.end = GangEnd::finished; break;
    case cluster::TIMED_OUT: report_.end = GangEnd::timed_out; break;
    case cluster::KILLED_BY_USER:
      if (!ended_by_us) report_.ended_by = info->ended_by();
      if (!ended_by_us) report_.notice = Duration(info->notice_ns());
      report_.end =
          ended_by_us.value_or(info->why() == kPreempted ? GangEnd::preempted : GangEnd::killed);
      break;
    default: tell_failure(*info); break;
  }
  return std::move(report_);
}

}  // namespace tutti::cli
