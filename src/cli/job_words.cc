#include "cli/job_words.h"

#include "cluster/job_layout.h"
#include "cluster/supervision.h"

namespace tutti::cli {
namespace {

constexpr double kNsPerSecond = 1e9;

Json time_json(int64_t unix_ns) {
  if (unix_ns == 0) return nullptr;
  return static_cast<double>(unix_ns) / kNsPerSecond;
}

}  // namespace

std::string_view state_name(cluster::JobState state) {
  switch (state) {
    case cluster::QUEUED: return "queued";
    case cluster::STARTING: return "starting";
    case cluster::RUNNING: return "running";
    case cluster::RESTARTING: return "restarting";
    case cluster::WAITING_FOR_HOSTS: return "waiting";
    case cluster::ENDING: return "ending";
    case cluster::SUCCEEDED: return "succeeded";
    case cluster::FAILED: return "failed";
    case cluster::KILLED_BY_USER: return "killed";
    case cluster::TIMED_OUT: return "timed-out";
    default: return "unknown";
  }
}

Json status_json(const cluster::StatusReply& status, const std::string& head) {
  Json hosts = Json::array();
  for (const cluster::HostStatus& host : status.hosts()) {
    Json leftovers = Json::array();
    for (const cluster::Leftover& leftover : host.leftovers())
      leftovers.push_back({{"job", leftover.job()}, {"what", leftover.what()}});
    hosts.push_back({{"node", host.node()},
                     {"name", host.name()},
                     {"address", host.address()},
                     {"alive", host.alive()},
                     {"away", host.away_for_ns() != 0},
                     {"slots", host.slots()},
                     {"free", host.free()},
                     {"version", host.version()},
                     {"leftovers", leftovers}});
  }
  Json twins = Json::array();
  for (const cluster::Twin& twin : status.twins())
    twins.push_back(
        {{"name", twin.name()}, {"times", twin.times()}, {"last", time_json(twin.last_unix_ns())}});
  return {{"cluster", status.cluster()},
          {"twins", twins},
          {"version", status.version()},
          {"head", head},
          {"tree", status.address()},
          {"running_jobs", status.running_jobs()},
          {"queued_jobs", status.queued_jobs()},
          {"hosts", hosts}};
}

Json process_json(const cluster::ProcessInfo& process, const std::string& host) {
  return {{"job", process.job()},
          {"process", process.process()},
          {"role", process.role()},
          {"rank", process.index()},
          {"pid", process.pid()},
          {"host", host},
          {"state", process.state()},
          {"step", process.step()},
          {"epoch", process.epoch()},
          {"restarts", process.restarts()},
          {"health", process.health()},
          {"spare", process.spare()},
          {"from_spare", process.from_spare()}};
}

Json job_json(const cluster::JobInfo& info) {
  Json json = {{"job", info.job()},
               {"name", info.name()},
               {"user", info.user()},
               {"state", state_name(info.state())},
               {"why", info.why()},
               {"ended_by", info.ended_by().empty() ? Json() : Json(info.ended_by())},
               {"processes", info.processes()},
               {"restarts", info.restarts()},
               {"submitted", time_json(info.submitted_unix_ns())},
               {"started", time_json(info.started_unix_ns())},
               {"ended", time_json(info.ended_unix_ns())},
               {"culprit", nullptr}};
  if (info.hosts_size() != 0) json["hosts"] = std::vector(info.hosts().begin(), info.hosts().end());
  if (info.leftovers_size() != 0) {
    json["leftovers"] = Json::array();
    for (const cluster::Row& row : info.leftovers()) json["leftovers"].push_back(row.message());
  }
  if (!info.culprit().has_exit()) return json;
  const cluster::Exit& exit = info.culprit().exit();
  const RangeSet who = set_from(info.culprit().processes()).value_or(RangeSet());
  json["culprit"] = {{"processes", who.members()},
                     {"code", exit.code()},
                     {"signal", exit.signal()},
                     {"error", error_class_text(exit.error())},
                     {"message", info.culprit().message()}};
  return json;
}

}  // namespace tutti::cli
