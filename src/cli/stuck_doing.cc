#include "cli/stuck_doing.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace tutti::cli {
namespace {

// Who has waited less may only wait for a slow step.
constexpr Duration kShortWait = 10s;

bool is_one_gang(const SeenJob& job) {
  return job.info.roles_size() == 1 && job.info.roles(0).kind() == job::Role::GANG;
}

std::string exit_words(const cluster::Exit& exit) {
  if (exit.signal() != 0) {
    const char* name = sigabbrev_np(exit.signal());
    return fmt::format("killed by SIG{}", name == nullptr ? "?" : name);
  }
  return fmt::format("ended with exit code {}", exit.code());
}

bool uses_fabric(const SeenRole& role) {
  return std::ranges::any_of(role.processes,
                             [](const StuckProcess& p) { return p.seen.flight.has_value(); });
}

// What it was at, when nobody waits for it in particular.
std::string plain_words(const StuckProcess& process, Doing doing) {
  switch (doing) {
    case Doing::computes: return "computing";
    case Doing::sleeps: return "sleeping, without using the processor";
    case Doing::blocked:
      return "blocked in the kernel (state D), as by a disk that does not answer";
    case Doing::stopped: return "stopped by a signal";
    case Doing::traced: return "held by a debugger";
    case Doing::starts:
      return process.look.info().restarts() == 0 ? "starting" : "being started again";
    case Doing::lost_peer: return "told that a rank was lost, and not in the next epoch yet";
    case Doing::left: return "past its last call: it has left the fabric";
    case Doing::ended: {
      const std::string words = exit_words(process.look.exit());
      return process.look.message().empty() ? words
                                            : fmt::format("{} ({})", words, process.look.message());
    }
    case Doing::calls: {
      const SeenCall* last = last_call(process.seen);
      if (last == nullptr) return "getting on";
      return fmt::format("getting on: {} of group {}{}", call_kind_name(last->kind),
                         process.seen.flight->groups[last->group].name, at_site(last->site));
    }
    default: return "";
  }
}

std::string ranks_option(const SeenJob& job, const SeenRole& role, const RangeSet& ranks) {
  return is_one_gang(job) ? ranks.text() : fmt::format("{}/{}", role.name, ranks.text());
}

// Those at the end of every chain of waits.
std::map<Doing, RangeSet> culprits_of(const SeenRole& role) {
  std::map<Doing, RangeSet> culprits;
  RangeSet missing;
  for (const StuckWait& wait : role.report.waits) missing.add(wait.missing);
  for (const StuckProcess& process : role.processes) {
    const RankDoing& doing = doing_of(role, process);
    const bool stops = doing.doing == Doing::stopped || doing.doing == Doing::traced;
    if (doing.doing != Doing::waits && (stops || missing.contains(doing.rank)))
      culprits[doing.doing].add(doing.rank);
  }
  return culprits;
}

std::vector<std::string> advice_of(const SeenJob& job, const SeenRole& role) {
  std::vector<std::string> next;
  Duration longest{};
  for (const StuckWait& wait : role.report.waits)
    longest = std::max(longest, Duration(wait.waited_ns));
  if (!role.report.failures.empty() ||
      std::ranges::any_of(role.report.waits, [](const auto& w) { return !w.different.empty(); }))
    next.emplace_back(
        "members of a group make the same calls, of the same size, in the same order");
  if (!role.report.deadlocks.empty())
    next.emplace_back("let all ranks make the calls of these groups in the same order");
  for (const auto& [doing, ranks] : culprits_of(role)) {
    const std::string name = who(job, role, ranks);
    const StuckProcess& first = *role.find(ranks.front());
    if (doing == Doing::ended && first.look.exit().code() == 0 && first.look.exit().signal() == 0)
      next.push_back(
          fmt::format("{} returned while others still call: all must make the same "
                      "number of calls",
                      name));
    if (job.past) continue;
    if (doing == Doing::stopped)
      next.push_back(fmt::format("tutti signal {} CONT --rank {}", job.info.job(),
                                 ranks_option(job, role, ranks)));
    if (doing == Doing::starts) next.push_back(fmt::format("wait: {} begins just now", name));
    if (doing != Doing::computes && doing != Doing::sleeps && doing != Doing::blocked) continue;
    if (longest < kShortWait && doing == Doing::computes)
      next.emplace_back("ask again in a while: a wait this short may only be a slow step");
    else if (doing == Doing::blocked)
      next.push_back(fmt::format("cat /proc/{}/wchan (on {}), as root, says what {} is blocked in",
                                 first.look.info().pid(), first.host,
                                 who(job, role, RangeSet(ranks.front()))));
    else
      next.push_back(fmt::format("py-spy dump --pid {} (on {}) shows where {} is",
                                 first.look.info().pid(), first.host,
                                 who(job, role, RangeSet(ranks.front()))));
  }
  return next;
}

bool is_held(const RankDoing& doing) {
  return doing.doing == Doing::stopped || doing.doing == Doing::traced ||
         doing.doing == Doing::blocked;
}

}  // namespace

std::string who(const SeenJob& job, const SeenRole& role, const RangeSet& ranks) {
  if (!is_one_gang(job)) return fmt::format("{} {}", role.name, ranks.text());
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", ranks.text());
}

std::string_view agree(const RangeSet& ranks, std::string_view one, std::string_view many) {
  return ranks.size() == 1 ? one : many;
}

std::string at_site(const std::string& site) {
  return site.empty() ? "" : fmt::format(" at {}", site);
}

const RankDoing& doing_of(const SeenRole& role, const StuckProcess& process) {
  return role.report.ranks[static_cast<size_t>(&process - role.processes.data())];
}

std::string_view doing_name(Doing doing) {
  switch (doing) {
    case Doing::waits: return "waits";
    case Doing::calls: return "calls";
    case Doing::computes: return "computes";
    case Doing::sleeps: return "sleeps";
    case Doing::blocked: return "blocked";
    case Doing::stopped: return "stopped";
    case Doing::traced: return "traced";
    case Doing::starts: return "starts";
    case Doing::lost_peer: return "lost_peer";
    case Doing::left: return "left";
    default: return "ended";
  }
}

std::string wait_name(const StuckWait& wait) {
  switch (wait.what) {
    case StuckWait::What::parcel: return wait.parcel.text() + at_site(wait.parcel.site);
    case StuckWait::What::joining: return "tutti.fabric.join()";
    case StuckWait::What::next_epoch: return "the beginning of the next epoch";
    case StuckWait::What::making: return fmt::format("the making of group {}", wait.group);
    default: break;
  }
  const std::string site = wait.sites.size() == 1 ? at_site(wait.sites.front().first) : "";
  return fmt::format("group {}, {}{}", wait.group, wait.call.text(), site);
}

std::string doing_words(const SeenJob& job, const SeenRole& role, const StuckProcess& process) {
  const RankDoing& doing = doing_of(role, process);
  std::string words = plain_words(process, doing.doing);
  if (doing.wait) {
    const StuckWait& wait = role.report.waits[*doing.wait];
    words += fmt::format("{}{} in {}", words.empty() ? "" : "; ", job.past ? "waited" : "waits",
                         wait_name(wait));
    if (!wait.missing.empty()) words += fmt::format(", for {}", who(job, role, wait.missing));
  }
  const cluster::ProcessInfo& info = process.look.info();
  if (info.step() != 0) words += fmt::format(", at step {}", info.step());
  if (process.look.phase() != 0) words += fmt::format(", phase {}", process.look.phase());
  if (!process.seen.flight && !process.no_record.empty()) {
    words += fmt::format("; no record: {}", process.no_record);
  } else if (!process.seen.flight && doing.doing != Doing::starts && uses_fabric(role)) {
    words += "; not in the fabric yet";
  }
  if (job.past && process.look.told_to_end() && process.look.has_exit())
    words += fmt::format(" (told to end, {})", exit_words(process.look.exit()));
  return words;
}

bool anything_stuck(const SeenJob& job) {
  return std::ranges::any_of(job.roles, [](const SeenRole& role) {
    return !role.report.waits.empty() || !role.report.failures.empty() ||
           std::ranges::any_of(role.report.ranks, is_held);
  });
}

std::vector<std::string> advice(const SeenJob& job) {
  std::vector<std::string> next;
  for (const SeenRole& role : job.roles)
    for (std::string& line : advice_of(job, role)) next.push_back(std::move(line));
  const bool waited = std::ranges::any_of(
      job.roles, [](const SeenRole& role) { return !role.report.waits.empty(); });
  if (job.past && waited && next.empty())
    next.push_back(
        fmt::format("tutti stuck {} --rank 0 shows the last calls of a rank", job.info.job()));
  if (!job.past && job.info.restarts() != 0)
    next.push_back(fmt::format("tutti stuck {} --ended shows what was before the last restart",
                               job.info.job()));
  return next;
}

}  // namespace tutti::cli
