#include "cli/job_words.h"
#include "cli/stuck_doing.h"
#include "cli/stuck_words.h"

namespace tutti::cli {
namespace {

Json call_json(const SeenCall& call, const std::string& group) {
  return {{"group", group},
          {"call", call.call},
          {"kind", call_kind_name(call.kind)},
          {"elements", call.elements},
          {"type", dtype_name(call.type)},
          {"op", reduces(call.kind) ? Json(reduce_op_name(call.op)) : Json()},
          {"bytes", call.bytes()},
          {"phase", flight_phase_name(call.phase)},
          {"site", call.site}};
}

Json wait_json(const StuckWait& wait) {
  constexpr std::string_view names[] = {"call", "make_group", "join", "next_epoch", "message"};
  Json json = {{"what", names[static_cast<int>(wait.what)]},
               {"group", wait.group},
               {"waiting", wait.waiting.members()},
               {"arrived", wait.arrived.members()},
               {"missing", wait.missing.members()},
               {"waited_seconds", to_seconds(Duration(wait.waited_ns))},
               {"sites", Json::array()},
               {"different", Json::array()}};
  if (wait.what == StuckWait::What::call) json["call"] = call_json(wait.call, wait.group);
  if (wait.what == StuckWait::What::parcel) {
    constexpr std::string_view kinds[] = {"none", "send", "receive", "put", "get"};
    json["message"] = {{"kind", kinds[static_cast<int>(wait.parcel.kind)]},
                       {"rank", wait.parcel.rank},
                       {"tag", wait.parcel.tag},
                       {"bytes", wait.parcel.bytes},
                       {"site", wait.parcel.site}};
  }
  for (const auto& [site, ranks] : wait.sites)
    json["sites"].push_back({{"site", site}, {"ranks", ranks.members()}});
  for (const auto& [what, ranks] : wait.different)
    json["different"].push_back({{"call", what}, {"ranks", ranks.members()}});
  return json;
}

Json stuck_process_json(const SeenJob& job, const SeenRole& role, const StuckProcess& process) {
  const RankDoing& doing = doing_of(role, process);
  const cluster::ProcessInfo& info = process.look.info();
  Json json = {{"rank", process.seen.rank},
               {"process", info.process()},
               {"pid", info.pid()},
               {"host", process.host},
               {"doing", doing_name(doing.doing)},
               {"words", doing_words(job, role, process)},
               {"wait", doing.wait ? Json(*doing.wait) : Json()},
               {"step", info.step()},
               {"progress", info.progress()},
               {"phase", process.look.phase()},
               {"restarts", info.restarts()},
               {"last_call", nullptr},
               {"calls", Json::array()}};
  json["quiet_seconds"] =
      process.look.quiet_ns() == 0 ? Json() : Json(to_seconds(Duration(process.look.quiet_ns())));
  json["processors"] = process.seen.busy < 0 ? Json() : Json(process.seen.busy);
  if (process.look.has_exit())
    json["exit"] = {{"code", process.look.exit().code()}, {"signal", process.look.exit().signal()}};
  if (!process.seen.flight) return json;
  const auto& groups = process.seen.flight->groups;
  if (const SeenCall* last = last_call(process.seen))
    json["last_call"] = call_json(*last, groups[last->group].name);
  for (const SeenCall& call : process.seen.flight->calls)
    json["calls"].push_back(call_json(call, groups[call.group].name));
  return json;
}

}  // namespace

Json stuck_json(const SeenJob& job) {
  Json json = {{"job", job.info.job()},
               {"name", job.info.name()},
               {"state", state_name(job.info.state())},
               {"past", job.past},
               {"stuck", anything_stuck(job)},
               {"roles", Json::array()},
               {"silent", Json::array()},
               {"next", advice(job)}};
  for (const SeenRole& role : job.roles) {
    Json told = {{"role", role.name},
                 {"ranks", Json::array()},
                 {"waits", Json::array()},
                 {"deadlocks", Json::array()},
                 {"failures", Json::array()}};
    for (const StuckProcess& process : role.processes)
      told["ranks"].push_back(stuck_process_json(job, role, process));
    for (const StuckWait& wait : role.report.waits) told["waits"].push_back(wait_json(wait));
    for (const auto& steps : role.report.deadlocks) {
      Json cycle = Json::array();
      for (const DeadlockStep& step : steps)
        cycle.push_back(
            {{"ranks", step.ranks.members()}, {"wait", step.wait}, {"for", step.wanted.members()}});
      told["deadlocks"].push_back(cycle);
    }
    for (const auto& [why, ranks] : role.report.failures)
      told["failures"].push_back({{"why", why}, {"ranks", ranks.members()}});
    json["roles"].push_back(told);
  }
  for (const auto& [host, why] : job.silent)
    json["silent"].push_back({{"host", host}, {"why", why}});
  return json;
}

}  // namespace tutti::cli
