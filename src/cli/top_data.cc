#include "cli/top_data.h"

#include <algorithm>

#include "cluster/job_layout.h"

namespace tutti::cli {
namespace {

// An agent that takes longer is shown as silent.
constexpr Duration kAgentPatience = 2s;
// Jobs that ended: the newest of them.
constexpr uint32_t kMostJobs = 1'000;
constexpr double kPercent = 100;
// Two looks that are closer measure the kernel's ticks, not the process.
constexpr int64_t kLeastSpan_ns = 50'000'000;

}  // namespace

double CpuMeter::percent(const cluster::HostInfo& host, const cluster::ProcessInfo& process) {
  Seen& seen = seen_[{host.host(), process.job(), process.process(), process.pid()}];
  seen.now = true;
  const bool first = seen.at_ns == 0;
  const int64_t used = process.cpu_ns() - seen.cpu_ns;
  const int64_t span = first ? process.age_ns() : host.sampled_ns() - seen.at_ns;
  if (span < kLeastSpan_ns) return seen.percent;
  // Less than before: a child has ended that nobody waited for.
  seen.percent =
      kPercent * static_cast<double>(std::max<int64_t>(0, used)) / static_cast<double>(span);
  seen.cpu_ns = process.cpu_ns();
  seen.at_ns = host.sampled_ns();
  return seen.percent;
}

void CpuMeter::end_look() {
  std::erase_if(seen_, [](const auto& entry) { return !entry.second.now; });
  for (auto& [process, seen] : seen_) seen.now = false;
}

Task<Result<Look>> TopData::look(Wish wish) {
  Look look;
  cluster::StatusRequest brief;
  brief.set_brief(true);
  auto status = co_await cluster_.client->ask(api::kStatus, brief);
  if (!status) co_return fail(std::move(status).error());
  look.status = std::move(*status);
  cluster::JobsRequest which;
  which.set_all(wish.ended_jobs);
  which.set_most(kMostJobs);
  auto jobs = co_await cluster_.client->ask(api::kJobs, which);
  if (!jobs) co_return fail(std::move(jobs).error());
  look.jobs.assign(jobs->jobs().begin(), jobs->jobs().end());
  if (wish.job != 0) {
    cluster::JobRequest one;
    one.set_job(wish.job);
    auto job = co_await cluster_.client->ask(api::kJob, one);
    if (!job) co_return fail(std::move(job).error());
    look.job = std::move(*job);
    co_await ask_agents(wish, look);
  }
  look.unix_ns = cluster_.world.clock().unix_ns();
  co_return look;
}

Task<void> TopData::ask_agents(const Wish& wish, Look& look) {
  std::vector<cluster::HostAbout> asked;
  const auto& members = look.job->members();
  const bool over = look.job->state() >= cluster::SUCCEEDED;
  if (!over && (wish.hosts || static_cast<size_t>(members.size()) <= kMostAgentsAsked))
    for (const cluster::HostAbout& host : members)
      if ((!wish.hosts || wish.hosts->contains(host.node())) && asked.size() < kMostAgentsAsked)
        asked.push_back(host);
  Scope asking;
  for (const cluster::HostAbout& host : asked) asking.spawn(ask_agent(host, wish.job, look));
  (void)co_await asking.join();
  meter_.end_look();
  // Those that left the view.
  for (auto agent = agents_.begin(); agent != agents_.end();) {
    const bool in_view = std::ranges::any_of(
        asked, [&](const cluster::HostAbout& host) { return host.node() == agent->first; });
    if (!in_view && agent->second != nullptr) co_await agent->second->close();
    agent = in_view ? std::next(agent) : agents_.erase(agent);
  }
}

Task<void> TopData::ask_agent(cluster::HostAbout host, uint64_t job, Look& look) {
  look.silent.add(host.node());
  if (host.name() != cluster_.machine.name && !certified_) {
    auto loaded = co_await cluster_.load_certificate();
    if (!loaded) co_return;
    certified_ = true;
  }
  std::unique_ptr<ApiCaller>& caller = agents_[host.node()];
  if (caller == nullptr) {
    auto made = cluster_.client->agent_of(host);
    if (!made) co_return;
    caller = std::move(*made);
  }
  cluster::PsRequest request;
  request.set_job(job);
  request.set_usage(true);
  const Instant patience = cluster_.world.clock().now() + kAgentPatience;
  auto asking = caller->ask(api::kAgentPs, request);
  auto infos = co_await with_deadline(cluster_.world.clock(), patience, std::move(asking));
  if (!infos) {
    // It may have come back elsewhere: the next look asks where it is then.
    co_await caller->close();
    caller.reset();
    co_return;
  }
  look.silent.remove(host.node());
  std::vector<SeenProcess>& seen = look.hosts[host.node()];
  for (const cluster::HostInfo& info : infos->hosts())
    for (const cluster::ProcessInfo& process : info.processes())
      seen.push_back({process, meter_.percent(info, process)});
}

Task<void> TopData::close() {
  for (const auto& [node, agent] : agents_)
    if (agent != nullptr) co_await agent->close();
  agents_.clear();
}

}  // namespace tutti::cli
