#include "cli/stuck_words.h"

#include <algorithm>
#include <set>

#include "cli/job_words.h"
#include "cli/stuck_doing.h"
#include "cli/table.h"

namespace tutti::cli {
namespace {

// Of ranks that do the same, process numbers and hosts are told for so many.
constexpr size_t kMostNamed = 4;
// What took less is not known better.
constexpr Duration kClockGrain = 10ms;
// Of a rank's last calls.
constexpr size_t kMostCalls = 20;

std::string quiet_words(int64_t quiet_ns) {
  return quiet_ns <= 0 ? ""
                       : fmt::format(", no progress for {}", format_duration(Duration(quiet_ns)));
}

// ---- those that do the same

struct Alike {
  RangeSet ranks;
  int64_t quiet_ns = 0;
  std::vector<std::string> places;  // "pid 17 on one"
};
using Folded = std::vector<std::pair<std::string, Alike>>;

void fold(Folded& folded, const std::string& words, const StuckProcess& process, bool past) {
  auto same = std::ranges::find(folded, words, [](const auto& entry) { return entry.first; });
  if (same == folded.end()) same = folded.insert(folded.end(), {words, {}});
  Alike& alike = same->second;
  alike.ranks.add(process.seen.rank);
  alike.quiet_ns = std::max(alike.quiet_ns, process.look.quiet_ns());
  if (alike.places.size() > kMostNamed) return;
  const std::string pid = past || process.look.info().pid() == 0
                              ? ""
                              : fmt::format("pid {} ", process.look.info().pid());
  alike.places.push_back(fmt::format("{}on {}", pid, process.host));
}

std::string places_text(const Alike& alike) {
  if (alike.places.size() > kMostNamed) return "";
  std::set<std::string> different(alike.places.begin(), alike.places.end());
  return fmt::format(" ({})", fmt::join(different, ", "));
}

std::string last_words(const StuckProcess& process, const StuckWait& wait) {
  if (wait.what != StuckWait::What::call || !process.seen.flight) return "";
  const SeenCall* last = last_call(process.seen, wait.key);
  if (last == nullptr) return "; no call there before";
  return fmt::format("; last call there: {}, {}{}{}", last->call, call_kind_name(last->kind),
                     at_site(last->site), last->under_way() ? ", under way" : "");
}

Folded missing_of(const SeenJob& job, const SeenRole& role, const StuckWait& wait,
                  RangeSet& unknown) {
  Folded folded;
  for (const uint32_t rank : wait.missing.members()) {
    const StuckProcess* process = role.find(rank);
    if (process == nullptr) {
      unknown.add(rank);
      continue;
    }
    fold(folded, doing_words(job, role, *process) + last_words(*process, wait), *process, job.past);
  }
  return folded;
}

// ---- the text

std::string heading(const SeenJob& job) {
  size_t processes = 0;
  std::set<std::string> hosts;
  for (const SeenRole& role : job.roles) {
    processes += role.count;
    for (const StuckProcess& process : role.processes) hosts.insert(process.host);
  }
  std::string text =
      fmt::format("job {} {} ({}", job.info.job(), job.info.name(), state_name(job.info.state()));
  if (!job.info.why().empty() && job.info.why() != state_name(job.info.state()))
    text += fmt::format(": {}", job.info.why());
  text += fmt::format("), {} process{}", processes, processes == 1 ? "" : "es");
  if (hosts.size() > 1) text += fmt::format(" on {} hosts", hosts.size());
  if (job.past) text += ", as they were when they ended";
  return text + "\n";
}

std::string deadlock_text(const SeenJob& job, const SeenRole& role,
                          const std::vector<DeadlockStep>& steps) {
  int64_t waited_ns = 0;
  for (const DeadlockStep& step : steps)
    waited_ns = std::max(waited_ns, role.report.waits[step.wait].waited_ns);
  std::string text = "deadlock";
  if (waited_ns > 0) text += fmt::format(", for {}", format_duration(Duration(waited_ns)));
  for (const DeadlockStep& step : steps)
    text += fmt::format("\n  {} {} in {}, for {}", who(job, role, step.ranks),
                        job.past ? "waited" : agree(step.ranks, "waits", "wait"),
                        wait_name(role.report.waits[step.wait]), who(job, role, step.wanted));
  return text + "\n";
}

// Whether the deadlock says all there is to say of a wait.
bool is_told(const SeenRole& role, size_t wait) {
  for (const auto& steps : role.report.deadlocks) {
    RangeSet all;
    for (const DeadlockStep& step : steps) all.add(step.ranks);
    const bool part =
        std::ranges::any_of(steps, [&](const auto& step) { return step.wait == wait; });
    if (part && role.report.waits[wait].missing.minus(all).empty()) return true;
  }
  return false;
}

// "arrived  ranks 0-2, of which 0,2 wait, for 3.1 s".
std::string arrived_text(const SeenJob& job, const SeenRole& role, const StuckWait& wait) {
  const bool worked = wait.what == StuckWait::What::call && wait.call.phase == FlightPhase::worked;
  const RangeSet& came = wait.missing.empty() ? wait.waiting : wait.arrived;
  std::string text = fmt::format("  {:<8} {}", worked ? "done" : "arrived",
                                 came.empty() ? "nobody" : who(job, role, came));
  if (wait.waiting != came)
    text += fmt::format("; {} {}", wait.waiting.text(),
                        job.past ? "waited" : agree(wait.waiting, "waits", "wait"));
  if (wait.waited_ns > 0) {
    const std::string_view verb = wait.waiting != came ? "" : job.past ? "waited " : "waiting ";
    text += fmt::format(", {}for {}", verb, format_duration(Duration(wait.waited_ns)));
  }
  return text + "\n";
}

std::string wait_text(const SeenJob& job, const SeenRole& role, const StuckWait& wait) {
  std::string text = wait_name(wait) + "\n" + arrived_text(job, role, wait);
  if (wait.missing.empty() && wait.what != StuckWait::What::next_epoch)
    text += "  nobody is missing\n";
  RangeSet unknown;
  for (const auto& [words, alike] : missing_of(job, role, wait, unknown))
    text += fmt::format("  {:<8} {}: {}{}{}\n", "missing", who(job, role, alike.ranks), words,
                        quiet_words(alike.quiet_ns), places_text(alike));
  if (!unknown.empty())
    text += fmt::format("  {:<8} {}: nothing is known of {}\n", "missing", who(job, role, unknown),
                        agree(unknown, "it", "them"));
  if (wait.sites.size() > 1)
    for (const auto& [site, ranks] : wait.sites)
      text += fmt::format("  {:<8} {}: at {}\n", "called", who(job, role, ranks), site);
  for (const auto& [words, ranks] : wait.different)
    text += fmt::format("  but {} {} {}\n", who(job, role, ranks), agree(ranks, "calls", "call"),
                        words);
  return text;
}

std::string others_text(const SeenJob& job, const SeenRole& role) {
  RangeSet told;
  for (const StuckWait& wait : role.report.waits) {
    told.add(wait.waiting);
    told.add(wait.missing);
  }
  Folded folded;
  for (const StuckProcess& process : role.processes)
    if (!told.contains(process.seen.rank))
      fold(folded, doing_words(job, role, process), process, job.past);
  std::string text;
  for (const auto& [words, alike] : folded)
    text += fmt::format("  {}: {}{}{}\n", who(job, role, alike.ranks), words,
                        quiet_words(alike.quiet_ns), places_text(alike));
  RangeSet unknown = role.count == 0 ? RangeSet() : RangeSet(0, role.count - 1);
  for (const StuckProcess& process : role.processes) unknown.remove(process.seen.rank);
  unknown.remove(told);
  if (!unknown.empty())
    text += fmt::format("  {}: {}\n", who(job, role, unknown),
                        job.past ? "nothing was kept" : "not here, or not known");
  return text;
}

std::string nothing_kept(const SeenJob& job) {
  if (job.info.state() == cluster::SUCCEEDED) return "  it succeeded: nothing was stuck\n";
  if (job.info.state() < cluster::SUCCEEDED)
    return "  none of its processes has failed or was ended so far\n";
  return "  nothing was kept of its processes: they ended before they could be looked at, long "
         "ago, or one by one without a failure\n";
}

std::string role_text(const SeenJob& job, const SeenRole& role) {
  std::string text;
  for (const auto& steps : role.report.deadlocks) text += deadlock_text(job, role, steps);
  for (const auto& [why, ranks] : role.report.failures)
    text += fmt::format("{} gave up: {}\n", who(job, role, ranks), why);
  for (size_t wait = 0; wait < role.report.waits.size(); ++wait)
    if (!is_told(role, wait)) text += wait_text(job, role, role.report.waits[wait]);
  return text;
}

}  // namespace

std::string stuck_text(const SeenJob& job) {
  std::string text = heading(job);
  const bool known =
      std::ranges::any_of(job.roles, [](const SeenRole& role) { return !role.processes.empty(); });
  const bool waits = std::ranges::any_of(
      job.roles, [](const SeenRole& role) { return !role.report.waits.empty(); });
  for (const SeenRole& role : job.roles) text += role_text(job, role);
  std::string others;
  if (known || !job.past)
    for (const SeenRole& role : job.roles) others += others_text(job, role);
  if (!known && job.past) text += nothing_kept(job);
  if (known && !anything_stuck(job) && !job.past) text += "nothing is stuck\n";
  if (waits && !others.empty()) text += "the others\n";
  text += others;
  if (known || !job.past)
    for (const auto& [host, why] : job.silent) text += fmt::format("{}: {}\n", host, why);
  const auto next = advice(job);
  for (const std::string& line : next)
    text += fmt::format("{} {}\n", &line == &next.front() ? "next:" : "     ", line);
  return text;
}

std::string history_text(const SeenJob& job, const RangeSet& processes) {
  std::string text;
  for (const SeenRole& role : job.roles) {
    for (const StuckProcess& process : role.processes) {
      if (!processes.contains(process.look.info().process())) continue;
      text += fmt::format("{} (pid {} on {}): {}\n", who(job, role, RangeSet(process.seen.rank)),
                          process.look.info().pid(), process.host, doing_words(job, role, process));
      if (!process.seen.flight || process.seen.flight->calls.empty()) continue;
      const auto& calls = process.seen.flight->calls;
      const size_t skipped = calls.size() - std::min(calls.size(), kMostCalls);
      const uint64_t before = process.seen.flight->earlier_calls + skipped;
      if (before != 0) text += fmt::format("  after {} call{}\n", before, before == 1 ? "" : "s");
      Table table({"  GROUP", "CALL", "WHAT", "AT", "PHASE", "BEGAN", "TOOK"});
      for (size_t i = skipped; i < calls.size(); ++i) {
        const SeenCall& call = calls[i];
        const std::string what = call.text();
        const Duration took(call.ended_ns - call.began_ns);
        table.add({"  " + process.seen.flight->groups[call.group].name,
                   fmt::format("{}", call.call), what.substr(what.find(", ") + 2), call.site,
                   std::string(flight_phase_name(call.phase)),
                   format_duration(Duration(process.seen.at_ns - call.began_ns)) + " ago",
                   call.ended_ns == 0   ? "-"
                   : took < kClockGrain ? "< 10 ms"
                                        : format_duration(took)});
      }
      text += table.text(false);
    }
  }
  return text;
}

}  // namespace tutti::cli
