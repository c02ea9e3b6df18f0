#include "cli/top_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/units.h"
#include "cli/job_words.h"
#include "cli/screen.h"
#include "cli/table.h"
#include "cluster/job_layout.h"
#include "cluster/job_words.h"

namespace tutti::cli {
namespace {

Cell text(std::string_view words) { return {harmless(words), {}}; }
Cell count(uint64_t number) { return {fmt::format("{}", number), static_cast<double>(number)}; }
Cell nothing() { return {"-", -1}; }
Cell percent(double number) { return {fmt::format("{:.0f}", number), number}; }
Cell memory(uint64_t bytes) { return {format_bytes(bytes), static_cast<double>(bytes)}; }
Cell age(int64_t ns) { return {age_text(ns, 0), static_cast<double>(ns)}; }

Tone tone_of(cluster::JobState state) {
  if (state == cluster::RUNNING || state == cluster::SUCCEEDED) return Tone::good;
  if (state == cluster::FAILED || state == cluster::TIMED_OUT) return Tone::bad;
  return state == cluster::KILLED_BY_USER ? Tone::plain : Tone::busy;
}
Tone tone_of(std::string_view state) {
  if (state == "running") return Tone::good;
  return state == "exited" || state == "silent" ? Tone::bad : Tone::busy;
}

// What several processes are together.
struct Sum {
  uint64_t processes = 0;
  std::map<std::string, uint64_t> states;
  double cpu_percent = 0;
  uint64_t memory_bytes = 0;
  uint64_t restarts = 0;
  uint64_t least_step = std::numeric_limits<uint64_t>::max();
  uint64_t most_step = 0;

  void add(const SeenProcess& seen) {
    ++processes;
    ++states[seen.info.state()];
    cpu_percent += seen.cpu_percent;
    memory_bytes += seen.info.memory_bytes();
    restarts += seen.info.restarts();
    least_step = std::min(least_step, seen.info.step());
    most_step = std::max(most_step, seen.info.step());
  }
  // "running", or "exited 1, running 3".
  std::string state() const {
    if (states.size() == 1) return states.begin()->first;
    std::string words;
    for (const auto& [state, number] : states)
      words += fmt::format("{}{} {}", words.empty() ? "" : ", ", state, number);
    return words;
  }
  Tone tone() const {
    if (states.contains("exited")) return Tone::bad;
    return states.size() == 1 && states.contains("running") ? Tone::good : Tone::busy;
  }
  Cell steps() const {
    if (most_step == 0) return nothing();
    if (least_step == most_step) return count(most_step);
    return {fmt::format("{}-{}", least_step, most_step), static_cast<double>(least_step)};
  }
};

std::optional<size_t> index_of(const cluster::JobInfo& job, const std::string& role) {
  for (int i = 0; i < job.roles_size(); ++i)
    if (job.roles(i).name() == role) return static_cast<size_t>(i);
  return {};
}

// Ranks of a role on each of its hosts.
std::map<uint32_t, RangeSet> ranks_by_host(const cluster::JobInfo& job, size_t role) {
  std::map<uint32_t, RangeSet> hosts;
  const uint32_t place = job.roles(static_cast<int>(role)).place();
  for (const cluster::Segment& segment : job.layout()) {
    if (segment.role() != place) continue;
    uint32_t next = segment.first();
    const uint32_t end = segment.first() + segment.count();
    for (uint32_t node = segment.first_node(); node <= segment.last_node() && next < end; ++node) {
      const uint32_t last = std::min(end, next + std::max(1U, segment.per_node())) - 1;
      hosts[node].add(next, last);
      next = last + 1;
    }
  }
  return hosts;
}

struct Likeness {
  uint32_t first;  // process of the role: roles in their order
  std::string role;
  uint32_t host;
  std::string state;
  uint64_t epoch;
  uint32_t restarts;
  uint64_t step;
  uint32_t process;  // when nothing is folded
  auto operator<=>(const Likeness&) const = default;
};
struct Alike {
  RangeSet ranks;
  RangeSet processes;
  std::vector<int64_t> pids;
  Sum sum;
  int64_t age_ns = 0;
};

TopRow row_of(const Likeness& like, const Alike& alike, const Look& look,
              const ProcessesShown& shown) {
  TopRow row;
  row.key = fmt::format("{}/{}", like.role, alike.ranks.front());
  row.job = look.job->job();
  row.role = like.role;
  row.host = like.host;
  row.processes = alike.processes;
  row.tone = tone_of(like.state);
  const auto number = static_cast<double>(alike.sum.processes);
  const auto mean_bytes = static_cast<double>(alike.sum.memory_bytes) / number;
  const bool runs = like.state == "running";
  const std::string pids = alike.pids.size() == 1 ? fmt::format("{}", alike.pids.front())
                                                  : fmt::format("{} …", alike.pids.front());
  if (!shown.role) row.cells.push_back(text(like.role));
  row.cells.push_back({alike.ranks.text(), static_cast<double>(alike.ranks.front())});
  if (!shown.host) row.cells.push_back(text(host_name(look, like.host)));
  row.cells.push_back(text(like.state));
  row.cells.push_back({pids, static_cast<double>(alike.pids.front())});
  row.cells.push_back(runs ? percent(alike.sum.cpu_percent / number) : nothing());
  row.cells.push_back(runs ? memory(static_cast<uint64_t>(mean_bytes)) : nothing());
  row.cells.push_back(alike.sum.steps());
  row.cells.push_back(count(like.restarts));
  row.cells.push_back({fmt::format("{}.{}", like.epoch >> 32, like.epoch & 0xffffffff),
                       static_cast<double>(like.epoch)});
  row.cells.push_back(runs ? age(alike.age_ns) : nothing());
  return row;
}

}  // namespace

std::string host_name(const Look& look, uint32_t node) {
  if (look.job)
    for (const cluster::HostAbout& host : look.job->members())
      if (host.node() == node) return harmless(host.name());
  return fmt::format("node{}", node);
}

TopTable jobs_table(const Look& look) {
  TopTable table;
  table.columns = {{"JOB", true, 9},   {"NAME", false, 8}, {"STATE", false, 9},
                   {"PROCS", true, 6}, {"HOSTS", true, 5}, {"RESTARTS", true, 4},
                   {"AGE", true, 5},   {"USER", false, 2}, {"WHY", false, 3}};
  for (const cluster::JobInfo& job : look.jobs) {
    TopRow row;
    row.key = fmt::format("{}", job.job());
    row.job = job.job();
    row.tone = tone_of(job.state());
    row.cells = {count(job.job()),
                 text(job.name()),
                 text(state_name(job.state())),
                 count(job.processes()),
                 count(nodes_of(job.layout()).size()),
                 count(job.restarts()),
                 age(look.unix_ns - job.submitted_unix_ns()),
                 text(job.user()),
                 text(job.why())};
    table.rows.push_back(std::move(row));
  }
  return table;
}

TopTable roles_table(const Look& look) {
  TopTable table;
  table.columns = {{"ROLE", false, 9},  {"KIND", false, 3},  {"PROCS", true, 6},
                   {"HOSTS", true, 5},  {"STATE", false, 8}, {"CPU%", true, 7},
                   {"MEMORY", true, 7}, {"STEP", true, 6},   {"RESTARTS", true, 4}};
  if (!look.job) return table;
  std::map<std::string, Sum> sums;
  for (const auto& [node, processes] : look.hosts)
    for (const SeenProcess& seen : processes) sums[seen.info.role()].add(seen);
  for (int i = 0; i < look.job->roles_size(); ++i) {
    const cluster::RoleInfo& role = look.job->roles(i);
    const auto found = sums.find(role.name());
    const bool known = found != sums.end();
    const Sum sum = known ? found->second : Sum();
    TopRow row;
    row.key = row.role = role.name();
    row.job = look.job->job();
    row.tone = known ? sum.tone() : Tone::plain;
    row.cells = {text(role.name()),
                 text(kKindWords[role.kind()]),
                 count(role.count()),
                 count(ranks_by_host(*look.job, static_cast<size_t>(i)).size()),
                 known ? text(sum.state()) : nothing(),
                 known ? percent(sum.cpu_percent) : nothing(),
                 known ? memory(sum.memory_bytes) : nothing(),
                 known ? sum.steps() : nothing(),
                 known ? count(sum.restarts) : nothing()};
    table.rows.push_back(std::move(row));
  }
  return table;
}

TopTable hosts_table(const Look& look, const std::string& role) {
  TopTable table;
  table.columns = {{"HOST", false, 9},  {"RANKS", false, 7},  {"PROCS", true, 5},
                   {"STATE", false, 8}, {"CPU%", true, 7},    {"MEMORY", true, 7},
                   {"STEP", true, 6},   {"RESTARTS", true, 4}};
  if (!look.job) return table;
  const auto index = index_of(*look.job, role);
  if (!index) return table;
  for (const auto& [node, ranks] : ranks_by_host(*look.job, *index)) {
    Sum sum;
    const auto found = look.hosts.find(node);
    if (found != look.hosts.end())
      for (const SeenProcess& seen : found->second)
        if (seen.info.role() == role) sum.add(seen);
    const bool known = sum.processes != 0;
    const bool silent = look.silent.contains(node);
    TopRow row;
    row.key = fmt::format("{}", node);
    row.job = look.job->job();
    row.role = role;
    row.host = node;
    row.tone = silent ? Tone::bad : known ? sum.tone() : Tone::plain;
    row.cells = {text(host_name(look, node)),
                 {ranks.text(), static_cast<double>(ranks.front())},
                 count(ranks.size()),
                 known    ? text(sum.state())
                 : silent ? text("silent")
                          : nothing(),
                 known ? percent(sum.cpu_percent) : nothing(),
                 known ? memory(sum.memory_bytes) : nothing(),
                 known ? sum.steps() : nothing(),
                 known ? count(sum.restarts) : nothing()};
    table.rows.push_back(std::move(row));
  }
  return table;
}

TopTable processes_table(const Look& look, const ProcessesShown& shown) {
  TopTable table;
  if (!shown.role) table.columns.push_back({"ROLE", false, 8});
  table.columns.push_back({"RANKS", false, 9});
  if (!shown.host) table.columns.push_back({"HOST", false, 7});
  for (const TopColumn& column :
       {TopColumn{"STATE", false, 8}, TopColumn{"PID", true, 6}, TopColumn{"CPU%", true, 7},
        TopColumn{"MEMORY", true, 7}, TopColumn{"STEP", true, 6}, TopColumn{"RESTARTS", true, 5},
        TopColumn{"EPOCH", true, 3}, TopColumn{"AGE", true, 4}})
    table.columns.push_back(column);
  if (!look.job) return table;
  std::map<Likeness, Alike> rows;
  for (const auto& [node, processes] : look.hosts) {
    if (shown.host && *shown.host != node) continue;
    for (const SeenProcess& seen : processes) {
      const cluster::ProcessInfo& info = seen.info;
      if (shown.role && *shown.role != info.role()) continue;
      if (!shown.only.empty() && !shown.only.contains(info.process())) continue;
      Alike& alike =
          rows[{info.process() - info.index(), info.role(), node, info.state(), info.epoch(),
                info.restarts(), info.step(), shown.folded ? 0 : info.process()}];
      alike.ranks.add(info.index());
      alike.processes.add(info.process());
      alike.pids.push_back(info.pid());
      alike.sum.add(seen);
      alike.age_ns = std::max(alike.age_ns, info.age_ns());
    }
  }
  for (const auto& [like, alike] : rows) table.rows.push_back(row_of(like, alike, look, shown));
  return table;
}

}  // namespace tutti::cli
