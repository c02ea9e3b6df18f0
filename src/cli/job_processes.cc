#include "cli/job_processes.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <vector>

#include "base/suggest.h"

namespace tutti::cli {
namespace {

Result<RangeSet> ranks_of(const cluster::RoleInfo& role, uint32_t first, std::string_view text) {
  RangeSet ranks(0, std::max(role.count(), 1U) - 1);
  if (!text.empty()) {
    TRY(ranks, RangeSet::parse(text));
  }
  if (ranks.empty() || ranks.back() >= role.count())
    return fail(Code::invalid, "role {} has ranks 0 to {}, not {}", role.name(), role.count() - 1,
                text);
  RangeSet processes;
  for (const RangeSet::Range& range : ranks.ranges())
    processes.add(first + range.first, first + range.last);
  return processes;
}

}  // namespace

Result<RangeSet> parse_processes(std::string_view text, const cluster::JobInfo& job) {
  const size_t slash = text.find('/');
  const std::string_view name = text.substr(0, slash);
  const bool only_ranks = slash == std::string_view::npos && !name.empty() &&
                          name.find_first_not_of("0123456789,-") == std::string_view::npos;
  if (only_ranks && job.roles_size() == 1) return ranks_of(job.roles(0), 0, text);
  std::vector<std::string_view> names;
  uint32_t first = 0;
  for (const cluster::RoleInfo& role : job.roles()) {
    if (role.name() == name)
      return ranks_of(role, first, slash == std::string_view::npos ? "" : text.substr(slash + 1));
    names.push_back(role.name());
    first += role.count();
  }
  if (only_ranks)
    return fail(Code::invalid, "job {} has several roles ({}); write ROLE/RANK, as {}/{}",
                job.job(), fmt::join(names, ", "), names.empty() ? "worker" : names.front(), text);
  const auto meant = suggest(name, names);
  return fail(Code::invalid, "job {} has no role '{}'; {} {}", job.job(), name,
              meant ? "did you mean" : "its roles are",
              meant ? fmt::format("'{}'?", *meant) : fmt::format("{}", fmt::join(names, ", ")));
}

Result<int> parse_signal(std::string_view text) {
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (whole && number > 0 && number < NSIG) return number;
  const std::string_view name = text.starts_with("SIG") ? text.substr(3) : text;
  for (number = 1; number < NSIG; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && name == known) return number;
  }
  return fail(Code::invalid, "there is no signal {}; write it as SIGUSR1, USR1 or 10", text);
}

std::string process_name(uint32_t process, const cluster::JobInfo& job) {
  if (job.roles_size() == 1 && job.roles(0).kind() == job::Role::GANG)
    return fmt::format("rank {}", process);
  uint32_t first = 0;
  for (const cluster::RoleInfo& role : job.roles()) {
    if (process - first < role.count()) return fmt::format("{} {}", role.name(), process - first);
    first += role.count();
  }
  return fmt::format("process {}", process);
}

}  // namespace tutti::cli
